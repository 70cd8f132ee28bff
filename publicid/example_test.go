package publicid_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

// The key comes from where an application keeps its secrets. Here it is written out, so that the output is always the
// same.
func ExampleNewKeys() {
	keys, err := publicid.NewKeys([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		panic(err)
	}
	orders, err := keys.Codec("ord")
	if err != nil {
		panic(err)
	}
	text := orders.Encode(2124472963691474944)
	id, err := orders.Decode(text)
	fmt.Println(text)
	fmt.Println(id, err)

	_, err = orders.Decode("ord_75m2xyjacf2eapsd58drmc0g0v") // of another application
	fmt.Println(err)
	// Output:
	// ord_7bhznb3dzqhphb87gmm2kvym2c
	// 2124472963691474944 <nil>
	// publicid: invalid id: "ord_75m2xyjacf2eapsd58drmc0g0v" was changed, or was made with another key
}

// A document has a public key.
type document struct {
	ID    publicid.ID[document] `json:"id"`
	Owner string                `json:"-"`
}

func (document) PublicPrefix() string { return "doc" }

func ExampleID() {
	// 32 random bytes from where the application keeps its secrets; all processes have the same.
	keys, err := publicid.NewKeys([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		panic(err)
	}
	if err := publicid.SetKeys(keys); err != nil {
		panic(err)
	}

	text, err := json.Marshal(document{ID: 2124472963691474944})
	fmt.Println(string(text), err)

	var read document
	err = json.Unmarshal([]byte(`{"id":"doc_00000000000000000000000000"}`), &read)
	fmt.Println(err)
	// Output:
	// {"id":"doc_1ksnvtr9x16afnm8p99avsgdx0"} <nil>
	// publicid: invalid id: "doc_00000000000000000000000000" was changed, or was made with another key
}

func ExampleScoped() {
	// ofOwner lets a user find its own rows. Other rows do not exist for it.
	ofOwner := func(user string) uidplugin.FindOption {
		return uidplugin.Scoped(func(db *gorm.DB, _ any) *gorm.DB { return db.Where("owner = ?", user) })
	}
	show := func(ctx context.Context, db *gorm.DB, user, text string) (any, error) {
		row, err := publicid.Find(ctx, db, text, uidplugin.OnlyModels(&document{}), ofOwner(user))
		if errors.Is(err, uidplugin.ErrNoSuchID) {
			return nil, errors.New("404")
		}
		return row, err
	}
	_ = show
}

func ExampleFindAs() {
	// names returns the owners of documents, in the order of the ids.
	names := func(ctx context.Context, db *gorm.DB, ids ...uidplugin.ID) (owners []string, err error) {
		documents, err := uidplugin.FindAs[document](ctx, db, ids...)
		if err != nil && !errors.Is(err, uidplugin.ErrNoSuchID) {
			return nil, err
		}
		for _, d := range documents {
			if d != nil { // nil for an id without a row
				owners = append(owners, d.Owner)
			}
		}
		return owners, nil
	}
	_ = names
}
