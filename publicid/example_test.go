package publicid_test

import (
	"fmt"

	"github.com/uidplugin/uidplugin/publicid"
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
