package supply

import (
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// Two spellings of one table had two counters, and each handed out the same ids.
func TestCanonicalTable_IsOneForAllSpellings(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		dialect          gorm.Dialector
		current, catalog string
		fold             bool
		name, want       string
	}{
		{mysql.Dialector{}, "shop", "", false, "orders", "orders"},
		{mysql.Dialector{}, "shop", "", false, "shop.orders", "orders"},
		{mysql.Dialector{}, "shop", "", false, "`orders`", "orders"},
		{mysql.Dialector{}, "shop", "", false, "`shop`.`orders`", "orders"},
		{mysql.Dialector{}, "shop", "", false, "`shop`.orders", "orders"},
		{mysql.Dialector{}, "shop", "", false, "Orders", "Orders"},
		{mysql.Dialector{}, "shop", "", false, "Shop.orders", "Shop.orders"},
		{mysql.Dialector{}, "shop", "", false, "`crm`.`Orders`", "crm.Orders"},
		{mysql.Dialector{}, "shop", "", true, "Shop.ORDERS", "orders"},
		{mysql.Dialector{}, "Shop", "", true, "`shop`.`Orders`", "orders"},
		{mysql.Dialector{}, "shop", "", true, "CRM.Orders", "crm.orders"},
		{mysql.Dialector{}, "", "", false, "shop.orders", "shop.orders"},
		{postgres.Dialector{Config: &postgres.Config{}}, "public", "db", false, "orders", "orders"},
		{postgres.Dialector{Config: &postgres.Config{}}, "public", "db", false, "public.orders", "orders"},
		{postgres.Dialector{Config: &postgres.Config{}}, "public", "db", false, `"public"."orders"`, "orders"},
		{postgres.Dialector{Config: &postgres.Config{}}, "public", "db", false, "db.public.orders", "orders"},
		{postgres.Dialector{Config: &postgres.Config{}}, "public", "db", false, "Orders", "Orders"},
		{postgres.Dialector{Config: &postgres.Config{}}, "public", "db", false, "Public.orders", "Public.orders"},
		{postgres.Dialector{Config: &postgres.Config{}}, "public", "db", false, "crm.orders", "crm.orders"},
		{postgres.Dialector{Config: &postgres.Config{}}, "public", "db", false, "db.crm.orders", "crm.orders"},
		{postgres.Dialector{Config: &postgres.Config{WithoutQuotingCheck: true}}, "public", "db", false, "Public.Orders", "orders"},
		{sqlite.Dialector{}, "main", "", true, "orders", "orders"},
		{sqlite.Dialector{}, "main", "", true, "ORDERS", "orders"},
		{sqlite.Dialector{}, "main", "", true, "Main.`Orders`", "orders"},
		{sqlite.Dialector{}, "main", "", true, "other.Orders", "other.orders"},
		{sqlite.Dialector{}, "main", "", true, "", ""},
	} {
		got := naming{dialector: tt.dialect, current: tt.current, catalog: tt.catalog, fold: tt.fold}.table(tt.name)
		if got != tt.want {
			t.Errorf("%s, current %q, case ignored %t: %s is %q, want %q", tt.dialect.Name(), tt.current, tt.fold, tt.name, got, tt.want)
		}
	}
}
