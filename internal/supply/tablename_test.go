package supply

import (
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
)

// Formerly two spellings of one table had two counters, and each handed out the same ids.
func TestCanonicalTable_IsOneForAllSpellings(t *testing.T) {
	t.Parallel()

	mysqls, postgreses := mysql.Dialector{}, postgres.Dialector{Config: &postgres.Config{}}
	unquoted := postgres.Dialector{Config: &postgres.Config{WithoutQuotingCheck: true}}
	for _, tt := range []struct {
		of    naming
		names map[string]string
	}{
		{naming{dialector: mysqls, current: "shop"}, map[string]string{
			"orders": "orders", "shop.orders": "orders", "`orders`": "orders", "`shop`.`orders`": "orders", "`shop`.orders": "orders",
			"Orders": "Orders", "Shop.orders": "Shop.orders", "`crm`.`Orders`": "crm.Orders",
		}},
		{naming{dialector: mysqls, current: "shop", fold: true}, map[string]string{"Shop.ORDERS": "orders", "CRM.Orders": "crm.orders"}},
		{naming{dialector: mysqls, current: "Shop", fold: true}, map[string]string{"`shop`.`Orders`": "orders"}},
		{naming{dialector: mysqls}, map[string]string{"shop.orders": "shop.orders"}},
		{naming{dialector: postgreses, current: "public", catalog: "db"}, map[string]string{
			"orders": "orders", "public.orders": "orders", `"public"."orders"`: "orders", "db.public.orders": "orders",
			"Orders": "Orders", "Public.orders": "Public.orders", "crm.orders": "crm.orders", "db.crm.orders": "crm.orders",
		}},
		{naming{dialector: unquoted, current: "public", catalog: "db"}, map[string]string{"Public.Orders": "orders"}},
		{naming{dialector: sqlite.Dialector{}, current: "main", fold: true}, map[string]string{
			"orders": "orders", "ORDERS": "orders", "Main.`Orders`": "orders", "other.Orders": "other.orders", "": "",
		}},
	} {
		for name, want := range tt.names {
			if got := tt.of.table(name); got != want {
				t.Errorf("%+v: %s is %q, want %q", tt.of, name, got, want)
			}
		}
	}
}
