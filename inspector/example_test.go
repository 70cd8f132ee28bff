package inspector_test

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/inspector"
	"gorm.io/gorm"
)

// Mount the page behind the authentication of the application. Here that is a password; any middleware will do.
func ExampleNew() {
	type Order struct {
		ID    uidplugin.ID `gorm:"primaryKey;uid"`
		Email string
	}
	db, err := gorm.Open(sqlite.Open("file:inspector?mode=memory&cache=shared"), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	if err := db.Use(uidplugin.New(uidplugin.WithModels(&Order{}), uidplugin.WithLogger(nil))); err != nil {
		panic(err)
	}

	page, err := inspector.New(db,
		inspector.WithPrefix("/admin/uid"),
		inspector.WithModels(&Order{}),
		inspector.WithMask(func(table, column string, value any) any {
			if column == "email" {
				return "(not shown)"
			}
			return value
		}))
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/uid/", onlyAdmins(page))
	mux.Handle("/ready", inspector.HealthHandler(db))

	for _, path := range []string{"/admin/uid/", "/ready"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /admin/uid/ 401
	// /ready 200
}

// onlyAdmins asks for a user and a password.
func onlyAdmins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(password), []byte("correct horse battery staple")) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="uid"`)
			http.Error(w, "not for you", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
