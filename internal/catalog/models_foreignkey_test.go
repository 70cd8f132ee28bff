package catalog_test

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Models whose associations have a foreign key of any type.
type (
	fkInvoice[K, F any] struct { // has many, and has one
		ID    K           `gorm:"primaryKey;uid"`
		Lines []fkLine[F] `gorm:"foreignKey:InvoiceID"`
		First *fkLine[F]  `gorm:"foreignKey:FirstID"`
	}
	fkLine[F any] struct {
		ID        int64 `gorm:"primaryKey;uid"`
		InvoiceID F
		FirstID   F
	}
	fkHasOne[F any] struct {
		ID   int64      `gorm:"primaryKey;uid"`
		Line *fkLine[F] `gorm:"foreignKey:InvoiceID"`
	}
	fkBelongsTo[F any] struct { // without a uid field of its own
		No     uint `gorm:"primaryKey"`
		PartID F
		Part   *plugintest.Part
	}
	fkOwner[F any] struct {
		ID     int64        `gorm:"primaryKey;uid"`
		Labels []fkLabel[F] `gorm:"polymorphic:Owner"`
	}
	fkLabel[F any] struct {
		ID        int64 `gorm:"primaryKey;uid"`
		OwnerID   F
		OwnerType string
	}
	fkPerson struct {
		ID    int64              `gorm:"primaryKey;uid"`
		Parts []*plugintest.Part `gorm:"many2many:fk_members;joinForeignKey:PersonID;joinReferences:PartID"`
		Other []fkOwnKey         `gorm:"foreignKey:PersonRef;references:Number"` // no uid field is referred to

		Number int32
	}
	fkMember[F any] struct {
		PersonID int64 `gorm:"primaryKey"`
		PartID   F     `gorm:"primaryKey"`
	}
	fkOwnKey struct {
		ID        int64 `gorm:"primaryKey;uid"`
		PersonRef int32
	}
)

func (fkInvoice[K, F]) TableName() string { return "fk_invoices" }
func (fkLine[F]) TableName() string       { return "fk_lines" }
func (fkHasOne[F]) TableName() string     { return "fk_has_ones" }
func (fkBelongsTo[F]) TableName() string  { return "fk_belongs_tos" }
func (fkOwner[F]) TableName() string      { return "fk_owners" }
func (fkLabel[F]) TableName() string      { return "fk_labels" }
func (fkMember[F]) TableName() string     { return "fk_members" }

// GORM copies the id of a row to the foreign key of another one, and cuts off what does not fit. Formerly the row was
// stored without a link, and without an error.
func TestPluginForeignKey_ThatLosesIDsIsRefusedByName(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		model any
		says  []string
	}{
		{&fkInvoice[int64, int32]{}, []string{".InvoiceID is an int32, but it refers to fkInvoice",
			".ID, whose ids have 64 bits: make it int64 or uidplugin.ID"}},
		{&fkInvoice[int64, int32]{}, []string{".FirstID is an int32"}},
		{&fkInvoice[int64, float64]{}, []string{".InvoiceID is a float64"}},
		{&fkInvoice[int64, *int32]{}, []string{".InvoiceID is a *int32"}},
		{&fkInvoice[int64, sql.NullInt32]{}, []string{".InvoiceID is a sql.NullInt32"}},
		{&fkInvoice[uidplugin.ID, int32]{}, []string{".InvoiceID is an int32"}},
		{&fkHasOne[int32]{}, []string{".InvoiceID is an int32, but it refers to fkHasOne"}},
		{&fkBelongsTo[int32]{}, []string{".PartID is an int32, but it refers to Part.ID"}},
		{&fkOwner[int32]{}, []string{".OwnerID is an int32, but it refers to fkOwner"}},
	} {
		t.Run(fmt.Sprintf("%T %v", tt.model, tt.says), func(t *testing.T) {
			t.Parallel()

			refused := func(err error) {
				t.Helper()
				testkit.IsError(t, err, uidplugin.ErrField, tt.says...)
			}
			db := plugintest.Bare(t)
			refused(db.Use(uidplugin.New(uidplugin.WithWorkerID(7), uidplugin.WithModels(tt.model))))
			plugintest.Unregistered(t, db)
			p := plugintest.Use(t, db, uidplugin.WithWorkerID(7))
			for range 2 {
				refused(db.Create(reflect.New(reflect.TypeOf(tt.model).Elem()).Interface()).Error)
			}
			refused(p.AutoMigrate(tt.model))
			refused(p.Register(t.Context(), tt.model))
		})
	}
}

// The join table of an application has fields of its own.
func TestPluginForeignKey_OfAJoinTableThatLosesIDsIsRefused(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	must(t, db.SetupJoinTable(&fkPerson{}, "Parts", &fkMember[int32]{}))
	err := uidplugin.From(db).AutoMigrate(&fkPerson{}, &plugintest.Part{}, &fkOwnKey{})
	testkit.IsError(t, err, uidplugin.ErrField, ".PartID is an int32, but it refers to Part.ID")

	db = plugintest.Open(t)
	must(t, db.SetupJoinTable(&fkPerson{}, "Parts", &fkMember[int64]{}))
	must(t, uidplugin.From(db).AutoMigrate(&fkPerson{}, &plugintest.Part{}, &fkOwnKey{}))
	must(t, db.Create(&fkPerson{Number: 5, Parts: []*plugintest.Part{{}}, Other: []fkOwnKey{{}}}).Error)
	plugintest.Links(t, db, "fk_members", "part_id", "parts", 1)
}

// fkRoom and fkDesk have an association at both ends of a foreign key.
type (
	fkRoom struct {
		ID    int64    `gorm:"primaryKey;uid"`
		Desks []fkDesk `gorm:"foreignKey:RoomID"`
	}
	fkDesk struct {
		ID     int64 `gorm:"primaryKey;uid"`
		RoomID int64 `gorm:"size:32"`
		Room   *fkRoom
	}
)

// A foreign key may belong to associations of two models. Formerly both reported it, with the advice to make an int64
// of an int64.
func TestPluginForeignKey_IsReportedOnceWithItsCause(t *testing.T) {
	t.Parallel()

	err := plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithWorkerID(7), uidplugin.WithModels(&fkRoom{}, &fkDesk{})))
	testkit.IsError(t, err, uidplugin.ErrField, "fkDesk.RoomID has only 32 bits (size:32 in its tag", "remove the size from its tag")
	if n := strings.Count(err.Error(), "RoomID"); n != 1 {
		t.Errorf("named %d times: %v", n, err)
	}
}

// An UPDATE saves associations as well, and would lose the ids in the same way. Without rows to save it loses nothing.
func TestPluginForeignKey_ThatLosesIDsIsRefusedInAnUpdate(t *testing.T) {
	t.Parallel()

	type invoice struct {
		ID    int64 `gorm:"primaryKey;uid"`
		Total int
		Lines []fkLine[int32]
	}
	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &invoice{}, &fkLine[int32]{})
	must(t, db.Exec("INSERT INTO invoices (id) VALUES (5)").Error)
	with := func() *invoice { return &invoice{ID: 5, Lines: []fkLine[int32]{{}}} }
	for name, update := range map[string]func() error{
		"Save":        func() error { return db.Save(with()).Error },
		"Updates":     func() error { return db.Updates(with()).Error },
		"Append":      func() error { return db.Model(&invoice{ID: 5}).Association("Lines").Append(&fkLine[int32]{}) },
		"transaction": func() error { return db.Transaction(func(tx *gorm.DB) error { return tx.Save(with()).Error }) },
	} {
		if err := update(); !errors.Is(err, uidplugin.ErrField) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, db.Omit("Lines").Save(with()).Error)
	must(t, db.Save(&invoice{ID: 5}).Error)
	if n := plugintest.Count(t, db, "fk_lines"); n != 0 {
		t.Errorf("%d lines", n)
	}
}

// saves creates an invoice with a line through the plugin, and reads both back.
func saves[K, F any](t *testing.T) {
	t.Helper()
	t.Run(fmt.Sprintf("%T", fkInvoice[K, F]{}), func(t *testing.T) {
		t.Parallel()

		db := plugintest.Open(t)
		must(t, uidplugin.From(db).AutoMigrate(&fkInvoice[K, F]{}, &fkLine[F]{}))
		must(t, db.Create(&fkInvoice[K, F]{Lines: []fkLine[F]{{}, {}}}).Error)
		plugintest.Links(t, db, "fk_lines", "invoice_id", "fk_invoices", 2)
	})
}

// Each type that can hold an id is a foreign key as well, also where the key has another type.
func TestPluginForeignKey_OfEachTypeThatHoldsIDsIsAccepted(t *testing.T) {
	t.Parallel()

	saves[int64, int64](t)
	saves[int64, uint64](t)
	saves[int64, int](t)
	saves[int64, string](t)
	saves[int64, number](t)
	saves[int64, word](t)
	saves[int64, plainNumber](t)
	saves[int64, uidplugin.ID](t)
	saves[int64, *int64](t)
	saves[int64, *uidplugin.ID](t)
	saves[int64, sql.NullInt64](t)
	saves[int64, sql.NullString](t)
	saves[int64, sql.Null[int64]](t)
	saves[int64, *sql.NullInt64](t)
	saves[int64, wrapped](t)
	saves[int64, *wrapped](t)
	saves[uint64, int64](t)
	saves[string, string](t)
	saves[string, int64](t)
	saves[string, spelled](t)
	saves[*int64, int64](t)
	saves[uidplugin.ID, int64](t)
	saves[sql.NullInt64, int64](t)
	saves[wrapped, wrapped](t)
	saves[spelled, spelled](t)
}

// A foreign key with a serializer may write the number as it likes. It worked before foreign keys were checked.
func TestPluginForeignKey_WithASerializerIsAccepted(t *testing.T) {
	t.Parallel()

	type line struct {
		ID     int64 `gorm:"primaryKey;uid"`
		BillID int64 `gorm:"serializer:json"`
	}
	type bill struct {
		ID    int64 `gorm:"primaryKey;uid"`
		Lines []line
	}
	db := plugintest.Open(t)
	must(t, uidplugin.From(db).AutoMigrate(&bill{}, &line{}))
	b := bill{Lines: []line{{}}}
	must(t, db.Create(&b).Error)
	if b.Lines[0].BillID != b.ID {
		t.Errorf("%+v", b)
	}
}
