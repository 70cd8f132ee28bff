package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/generator/capacity"
	"github.com/uidplugin/uidplugin/internal/admin"
)

// decoding holds the flags of decode.
type decoding struct {
	system system
	all    bool
	made   time.Time     // when the rows were created; zero if unknown
	within time.Duration // how far the time of an id may be from made
	now    time.Time
	ids    idReader
}

// A decoded is an id as decoded for one system.
type decoded struct {
	ID       int64         `json:"id,string"`
	System   string        `json:"system"`
	Layout   string        `json:"layout"`
	Time     admin.Instant `json:"time"`
	Tick     int64         `json:"tick"`
	WorkerID int64         `json:"worker_id"`
	Sequence int64         `json:"sequence"`
	Note     string        `json:"note,omitempty"`

	picture string
}

// A wrongID is an id that cannot be decoded.
type wrongID struct {
	ID    string `json:"id"` // as given
	Error string `json:"error"`
	Code  string `json:"code"`
}

func (a *app) decodeCommand() *cobra.Command {
	var layout, made string
	d := decoding{}
	c := &cobra.Command{
		Use:   "decode [ID...]",
		Short: "Split ids into their parts, without a database",
		Long: `decode splits ids into time, worker id and sequence, and draws their bits.

It reads its arguments or, if there are none, standard input: one id per line. The layout is --layout, or else
the layout of the database, or else the default layout. If an id cannot be decoded, the command continues with
the next one, and the exit code is 1.`,
		Example: `  uid decode 1176816959799427126
  uid decode --layout discord 175928847299117063
  uid decode --made 2022-11-14 --within 24h 1592258304000000000
  zgrep -oh '[0-9]\{19\}' app.log.gz | uid decode --json`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.readDecoding(c.Context(), &d, layout, made); err != nil {
				return err
			}
			return a.decode(d, args)
		},
	}
	c.Flags().StringVar(&layout, "layout", "", "the layout: a name, see --all, or a text such as "+
		"1-41-18-4/1ms@1514764800")
	c.Flags().BoolVar(&d.all, "all", false, "decode with all named layouts")
	c.Flags().StringVar(&made, "made", "",
		"when the rows were created; lists only systems in which the ids have this time")
	c.Flags().Var(durationVar(&d.within, time.Hour), "within", "tolerance of --made")
	_ = c.RegisterFlagCompletionFunc("layout", cobra.FixedCompletions(presetNames(), cobra.ShellCompDirectiveNoFileComp))
	c.MarkFlagsMutuallyExclusive("layout", "all")
	c.MarkFlagsMutuallyExclusive("layout", "made")
	reader := a.idReader(c)
	c.PreRunE = func(*cobra.Command, []string) (err error) {
		d.ids, err = reader()
		return err
	}
	return c
}

func (a *app) readDecoding(ctx context.Context, d *decoding, layout, creation string) (err error) {
	d.now = a.now()
	switch {
	case creation != "":
		d.all = true
		d.made, err = a.time(creation)
	case !d.all:
		d.system, err = a.system(ctx, layout)
		if err != nil && layout == "" {
			err = fmt.Errorf("%w (pass --layout to decode without the database)", err)
		}
	}
	return err
}

// system returns the system of --layout, or else the system of the database, or else the default system.
func (a *app) system(ctx context.Context, layout string) (s system, err error) {
	switch {
	case layout != "":
		return parseSystem(layout)
	case a.source() == "":
		return presets()[0], nil
	}
	s.Name = "uidplugin"
	err = a.with(ctx, reads, func(d *database) error {
		s.Layout = d.Layout
		return nil
	})
	return s, err
}

func (a *app) decode(d decoding, args []string) error {
	wrong, first := false, true
	err := a.eachID(args, func(text string) error {
		list, err := d.decode(text)
		if err != nil {
			wrong = true
			return a.writeWrong(text, err)
		}
		if !first && !a.json {
			fmt.Fprintln(a.out)
		}
		first = false
		return a.writeDecoded(list, d.all)
	})
	return cond(err, wrong)
}

// cond returns err, or else errWrong if wrong is true.
func cond(err error, wrong bool) error {
	if err == nil && wrong {
		return errWrong
	}
	return err
}

// writeWrong explains why an id cannot be decoded, on standard error or as JSON.
func (a *app) writeWrong(text string, err error) error {
	if a.json {
		return writeJSON(a.out, wrongID{ID: text, Error: err.Error(), Code: codeOf(err)})
	}
	a.complain(err)
	return nil
}

// errSystem reports an id that cannot come from any known system.
var errSystem = errors.New("no known system fits")

func (d decoding) decode(text string) ([]decoded, error) {
	id, err := d.ids.id(text)
	if err != nil {
		return nil, err
	}
	if !d.all {
		one, err := d.decodeFor(d.system, id)
		return []decoded{one}, err
	}
	var list []decoded
	for _, s := range presets() {
		one, err := d.decodeFor(s, id)
		switch {
		case err != nil,
			d.made.IsZero() && one.Time.Sub(d.now) > ahead,
			!d.made.IsZero() && one.Time.Sub(d.made).Abs() > d.within:
			continue
		}
		list = append(list, one)
	}
	if len(list) == 0 && !d.made.IsZero() {
		return nil, fmt.Errorf("%w: none of them made %d within %v of %s", errSystem, id, d.within, at(d.made))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: none of them can have made %d yet", errSystem, id)
	}
	return list, nil
}

func (d decoding) decodeFor(s system, id int64) (decoded, error) {
	l := s.Layout
	p, err := s.Decode(id)
	switch {
	case err != nil:
		return decoded{}, err
	case id>>(l.WorkerBits+l.SequenceBits) == 0:
		return decoded{}, fmt.Errorf("%w: %d is too small for the layout: it may be a key of AUTO_INCREMENT or of "+
			"a segment", generator.ErrLayout, id)
	}
	one := decoded{
		ID:       id,
		System:   s.Name,
		Layout:   l.String(),
		Time:     admin.Instant{Time: p.Time},
		Tick:     l.TickAt(p.Time),
		WorkerID: p.WorkerID,
		Sequence: p.Sequence,
	}
	if s.SequenceFirst {
		one.Note = "the order of its bits is time, sequence, worker id"
	} else if one.picture, err = capacity.Picture(l, id); err != nil {
		return decoded{}, err
	}
	if p.Time.Sub(d.now) > ahead {
		one.Note = "this time is in the future, so the id may have another layout; try --all"
	}
	return one, nil
}

// ahead is how far in the future the time of an id may be. It is the largest Lead.
const ahead = time.Hour

// writeDecoded writes a picture of an id, or a line for each system if the id was decoded for several.
func (a *app) writeDecoded(list []decoded, several bool) error {
	if !several && !a.json {
		return list[0].write(a)
	}
	if !a.json {
		fmt.Fprintf(a.out, "id %d\n", list[0].ID)
	}
	columns := []string{"SYSTEM", "TIME", "WORKER ID", "SEQUENCE", "LAYOUT"}
	return writeList(a, list, columns, func(d decoded) []string {
		return []string{d.System, at(d.Time.Time), fmt.Sprint(d.WorkerID), fmt.Sprint(d.Sequence), d.Layout}
	})
}

func (o decoded) write(a *app) error {
	text := o.picture
	if text == "" {
		text = fmt.Sprintf("id     %d\ntime   %s UTC\nworker %d\nseq    %d\n", o.ID, at(o.Time.Time), o.WorkerID, o.Sequence)
	}
	if o.Note != "" {
		text += fmt.Sprintf("note   %s\n", o.Note)
	}
	_, err := fmt.Fprint(a.out, text)
	return err
}
