package docs_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// A README that takes more than five minutes is not read to its end.
func TestReadme_IsShort(t *testing.T) {
	t.Parallel()
	const most = 900 // tables count, fenced code does not
	d, err := read(root + "/README.md")
	must(t, err)
	n := 0
	for _, p := range d.passages() {
		n += words(p.full)
	}
	if n > most || n < most/4 {
		t.Errorf("README.md has %d words, at most %d", n, most)
	}
}

// Who looks at a README wants to see something work first.
func TestReadme_HasACommandToRunWithinTwentyLines(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"README.md", "README_zh.md"} {
		d, err := read(root + "/" + name)
		must(t, err)
		if blocks := d.blocks; len(blocks) == 0 || blocks[0].language != "sh" || blocks[0].line > 20 {
			t.Errorf("%s: no command in the first 20 lines", name)
		}
	}
}

func TestProse_SentencesAreShort(t *testing.T) {
	t.Parallel()
	const most = 25 // words; a span of code is one
	eachEnglish(t, func(t *testing.T, d *document) {
		for _, p := range d.passages() {
			for _, s := range sentences(p.text) {
				n := words(s)
				if p.cell {
					n -= strings.Count(s, code) // a list of names is no sentence
				}
				if n > most {
					t.Errorf("%s:%d: a sentence of %d words, at most %d: %s", d.name, p.line, n, most, strings.ReplaceAll(s, code, "`...`"))
				}
			}
		}
	})
}

// A cell with several sentences is a paragraph in a narrow column.
func TestProse_TableCellsAreOneSentence(t *testing.T) {
	t.Parallel()
	eachEnglish(t, func(t *testing.T, d *document) {
		for _, p := range d.passages() {
			if p.cell && len(sentences(p.text)) > 1 {
				t.Errorf("%s:%d: a cell with several sentences: %s", d.name, p.line, p.full)
			}
		}
	})
}

func TestProse_LinesFitAScreen(t *testing.T) {
	t.Parallel()
	const most = 120
	eachEnglish(t, func(t *testing.T, d *document) {
		number, output := 0, false // output of programs is as wide as they write it
		for line := range strings.Lines(string(d.source)) {
			number++
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "```") {
				output = line == "```text"
			}
			if n := utf8.RuneCountInString(line); n > most && !output && !strings.HasPrefix(line, "|") && !strings.Contains(line, "://") {
				t.Errorf("%s:%d: %d columns, at most %d", d.name, number, n, most)
			}
			if strings.TrimRight(line, " \t") != line {
				t.Errorf("%s:%d: spaces at the end", d.name, number)
			}
		}
	})
}

// oldWords are words that the project no longer uses, because a reader had to learn them. Each has a plain word that the
// glossary, or any dictionary, has.
var oldWords = map[string]string{
	`seats?|seated`: "slot",
	`table holds?`:  "table lease",
	`t[ao]ke(s|n)? over|taking over|took over`: "reclaim",
	`giv(e|es|en|ing) back|gave back`:          "release",
	`heartbeats?|beats`:                        "renewal, or renew interval",
	`glances?`:                                 "sample",
	`boldly|puzzling|starved|stash|aloof`:      "another word",
	`keeper`:                                   "lease manager",
	`forgetful`:                                "durability risk",
	`patience`:                                 "wait, or time-out",
	`in doubt`:                                 "outcome unknown",
	`for ?ever`:                                "permanently",
	`mend(s|ed|ing)?`:                          "fix",
	`by hand`:                                  "manually",
	`as today`:                                 "unchanged",
	`of no use`:                                "has no effect",
	`beside`:                                   "next to, or compared with",
	`leads? back|led back`:                     "resolves to",
	`there (is|are) none`:                      "no X exists",
	`comes? to be in need|in need`:             "needs",
	`endless`:                                  "full lease",
}

func TestProse_OldWordsDoNotComeBack(t *testing.T) {
	t.Parallel()
	patterns := map[*regexp.Regexp]string{}
	for word, instead := range oldWords {
		patterns[regexp.MustCompile(`(?i)\b(`+word+`)\b`)] = instead
	}
	eachEnglish(t, func(t *testing.T, d *document) {
		for _, p := range d.passages() {
			for word, instead := range patterns {
				if found := word.FindString(p.text); found != "" {
					t.Errorf("%s:%d: %q: write %s: %s", d.name, p.line, found, instead, p.full)
				}
			}
		}
	})
}

func TestSentences_EndAtFullStops(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"One sentence.":                   1,
		"One sentence. Another one":       2,
		"As of v1.2.3 it is 1, 2, 3 ... ": 1,
		"Call it. " + code + " returns":   2,
		"One (in brackets). \"Two\"!":     2,
		"see e.g. the other page":         1,
	} {
		if got := sentences(text); len(got) != want {
			t.Errorf("%q: %d sentences, want %d: %q", text, len(got), want, got)
		}
	}
	if got := words("one " + code + " - | three, *four*"); got != 4 {
		t.Errorf("%d words, want 4", got)
	}
}
