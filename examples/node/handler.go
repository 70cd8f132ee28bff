package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

// listed restricts lookups to the models that callers may see.
var listed = uidplugin.OnlyModels(&Customer{}, &Order{}, &Item{})

// ofTenant limits lookups to the rows of a tenant.
func ofTenant(tenant string) uidplugin.FindOption {
	return uidplugin.Scoped(func(db *gorm.DB, model any) *gorm.DB {
		if _, ok := model.(*Item); ok { // an item has the tenant of its order
			orders := db.Session(&gorm.Session{NewDB: true}).Model(&Order{}).Select("id").Where("tenant = ?", tenant)
			return db.Where("order_id IN (?)", orders)
		}
		return db.Where("tenant = ?", tenant)
	})
}

// handler serves the rows of a database.
func handler(db *gorm.DB) http.Handler {
	mux := http.NewServeMux()
	plugin := uidplugin.From(db)
	mux.HandleFunc("GET /node/{id}", func(w http.ResponseWriter, r *http.Request) {
		row, err := publicid.Find(r.Context(), db, r.PathValue("id"), listed, ofTenant(tenantOf(r)))
		if err != nil {
			failed(w, err)
			return
		}
		answer(w, http.StatusOK, row)
	})
	// The list follows the order of the ids, with null for each id that does not exist for the caller.
	mux.HandleFunc("GET /nodes", func(w http.ResponseWriter, r *http.Request) {
		texts := r.URL.Query()["id"]
		if len(texts) > 100 {
			answer(w, http.StatusBadRequest, map[string]string{"error": "more than 100 ids"})
			return
		}
		ids := make([]uidplugin.ID, len(texts))
		for i, text := range texts {
			id, err := publicid.ParseAny(text)
			if err != nil && !errors.Is(err, uidplugin.ErrNoSuchID) {
				failed(w, err)
				return
			}
			ids[i] = uidplugin.ID(id) // 0 if the text is not an id
		}
		found, err := plugin.FindAll(r.Context(), ids, listed, ofTenant(tenantOf(r)))
		if err != nil && !errors.Is(err, uidplugin.ErrNoSuchID) {
			failed(w, err)
			return
		}
		rows := make([]any, len(ids))
		for i, id := range ids {
			if row := found[id]; isNamed(row, texts[i]) {
				rows[i] = row
			}
		}
		answer(w, http.StatusOK, rows)
	})
	orders(mux, db)
	return mux
}

// isNamed reports whether the text is the row's id. FindAll compares only numbers, and a text of another type may have
// the same number.
func isNamed(row any, text string) bool {
	switch row := row.(type) {
	case *Customer:
		return names(text, row.ID)
	case *Order:
		return names(text, row.ID)
	case *Item:
		return names(text, row.ID)
	}
	return false
}

func names[T publicid.Type](text string, id publicid.ID[T]) bool {
	parsed, err := publicid.Parse[T](text)
	return err == nil && parsed == id
}

// orders serves the orders of a tenant: a list with a cursor, an update and a delete. Ids are parsed first, so no text
// of the caller reaches a condition.
func orders(mux *http.ServeMux, db *gorm.DB) {
	handle := func(r *http.Request) *gorm.DB {
		return db.WithContext(r.Context()).Where("tenant = ?", tenantOf(r))
	}
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, r *http.Request) {
		query := handle(r)
		if text := r.FormValue("after"); text != "" {
			after, err := publicid.Parse[Order](text)
			if err != nil {
				failed(w, err)
				return
			}
			query = query.Where("id > ?", after)
		}
		page := []Order{}
		if err := query.Order("id").Limit(20).Find(&page).Error; err != nil {
			failed(w, err)
			return
		}
		answer(w, http.StatusOK, page)
	})
	mux.HandleFunc("PATCH /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		var change struct {
			Customer publicid.ID[Customer] `json:"customer"` // rejects texts of other types
		}
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"error": "not a change of an order"})
			return
		}
		order, err := publicid.FindAs[Order](r.Context(), handle(r), r.PathValue("id"))
		if err == nil { // the customer must belong to the tenant, too
			err = handle(r).Take(&Customer{}, change.Customer).Error
		}
		if err == nil {
			changed := handle(r).Model(order).Update("customer_id", change.Customer)
			if err = changed.Error; err == nil && changed.RowsAffected == 0 { // on MySQL this needs clientFoundRows=true
				err = gorm.ErrRecordNotFound // the order was deleted meanwhile
			}
		}
		if err != nil {
			failed(w, err)
			return
		}
		answer(w, http.StatusOK, order)
	})
	mux.HandleFunc("DELETE /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, err := publicid.Parse[Order](r.PathValue("id"))
		if err == nil {
			deleted := handle(r).Where("id = ?", id).Delete(&Order{})
			if err = deleted.Error; err == nil && deleted.RowsAffected == 0 {
				err = gorm.ErrRecordNotFound
			}
		}
		if err != nil {
			failed(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// failed answers with the same 404 for everything that the caller may not see.
func failed(w http.ResponseWriter, err error) {
	if errors.Is(err, uidplugin.ErrNoSuchID) || errors.Is(err, gorm.ErrRecordNotFound) {
		answer(w, http.StatusNotFound, map[string]string{"error": "not found"})
		return
	}
	slog.Error("node", "error", err)
	answer(w, http.StatusInternalServerError, map[string]string{"error": "try again later"}) // the log has the details
}

// tenantOf stands for the application's authentication.
func tenantOf(r *http.Request) string { return r.Header.Get("X-Tenant") }

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
