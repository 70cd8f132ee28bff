package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// listed are the models that the handlers show. Whatever else has an id does not exist for callers.
var listed = uidplugin.OnlyModels(&Customer{}, &Order{}, &Item{})

// ofTenant lets a caller see the rows of its tenant.
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
		row, err := plugin.FindPublic(r.Context(), r.PathValue("id"), listed, ofTenant(tenantOf(r)))
		switch {
		case errors.Is(err, uidplugin.ErrNoSuchID):
			answer(w, http.StatusNotFound, map[string]string{"error": "not found"})
		case err != nil:
			fail(w, err)
		default:
			answer(w, http.StatusOK, row)
		}
	})
	// The list has an element for each id, in the order of the ids: null for one that does not exist for the caller.
	mux.HandleFunc("GET /nodes", func(w http.ResponseWriter, r *http.Request) {
		texts := r.URL.Query()["id"]
		if len(texts) > 100 {
			answer(w, http.StatusBadRequest, map[string]string{"error": "more than 100 ids"})
			return
		}
		ids := make([]uidplugin.ID, len(texts))
		for i, text := range texts {
			id, err := uidplugin.ParsePublicID(text)
			if err != nil && !errors.Is(err, uidplugin.ErrNoSuchID) {
				fail(w, err)
				return
			}
			ids[i] = id // 0 for a text that is none
		}
		found, err := plugin.FindAll(r.Context(), ids, listed, ofTenant(tenantOf(r)))
		if err != nil && !errors.Is(err, uidplugin.ErrNoSuchID) {
			fail(w, err)
			return
		}
		rows := make([]any, len(ids))
		for i, id := range ids {
			rows[i] = found[id] // nil if it is not there
		}
		answer(w, http.StatusOK, rows)
	})
	return mux
}

// tenantOf stands for authentication, which every application has in its own way.
func tenantOf(r *http.Request) string { return r.Header.Get("X-Tenant") }

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// fail hides what went wrong from the caller.
func fail(w http.ResponseWriter, err error) {
	slog.Error("node: find", "error", err)
	answer(w, http.StatusInternalServerError, map[string]string{"error": "try again later"})
}
