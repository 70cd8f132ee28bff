package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	gofrs "github.com/gofrs/uuid/v5"
	"github.com/google/uuid"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// An insertTask is what a process inserts.
type insertTask struct {
	Database *testkit.Database
	Kind     string
	Pause    time.Duration // from one row to the next one, on average
}

// insertedRows is what it has inserted.
type insertedRows struct {
	Kind    string
	Commits []commit
}

// insertRows is the role of a process that inserts rows one by one. It says that it is ready, waits for a line, inserts
// until its input ends, and writes all rows as one line.
func insertRows(task insertTask, in *bufio.Reader) (err error) {
	db, err := connect(task.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, testkit.Close(db)) }()
	if model := map[string]any{orderUID: &orderedUID{}, orderRolling: &orderedRolling{}}[task.Kind]; model != nil {
		p, err := use(db, uidplugin.WithModels(model))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closePlugin(p)) }()
	}
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(stop)
	}()
	rows := insertedRows{Kind: task.Kind}
	for ended := false; !ended; {
		id, err := insertRow(db, task.Kind)
		if err != nil {
			return err
		}
		rows.Commits = append(rows.Commits, commit{padded(id), time.Now().UnixNano()})
		select {
		case <-stop:
			ended = true
		case <-time.After(rand.N(2 * task.Pause)):
		}
	}
	text, err := json.Marshal(rows)
	fmt.Println(string(text))
	return err
}

// insertRow creates a row of a kind, and returns its key.
func insertRow(db *gorm.DB, kind string) (id string, err error) {
	switch kind {
	case orderAuto:
		row := orderedAuto{}
		err = db.Create(&row).Error
		return fmt.Sprint(row.ID), err
	case orderV7:
		row := orderedV7{ID: uuid.Must(uuid.NewV7()).String()}
		return row.ID, db.Create(&row).Error
	case orderGofrs:
		row := orderedGofrs{ID: gofrs.Must(gofrs.NewV7()).String()}
		return row.ID, db.Create(&row).Error
	case orderUID:
		row := orderedUID{}
		err = db.Create(&row).Error
		return row.ID.String(), err
	}
	row := orderedRolling{}
	err = db.Create(&row).Error
	return row.ID.String(), err
}
