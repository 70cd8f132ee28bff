package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A language is one in which the document is written. Each text is in both, in one place: in Go as the arguments of
// [language.say], and in document.tmpl as those of say, or between {{if en}} and {{end}}.
type language int

const (
	inEnglish language = iota
	inChinese
)

// say writes a text in the language. Both formats get all arguments; %[2]s is the second one.
func (in language) say(english, chinese string, args ...any) string {
	if in == inChinese {
		return fmt.Sprintf(chinese, args...)
	}
	return fmt.Sprintf(english, args...)
}

// list joins the items of a list. It counts those after the fourth one: nobody reads more in a sentence.
func (in language) list(items []string) string {
	const most = 4
	if rest := len(items) - most; rest > 0 {
		return in.say("%s and %d more", "%s，另有 %d 种", in.list(items[:most]), rest)
	}
	return strings.Join(items, in.say(", ", "、"))
}

// valued is an item of a list, with a figure.
func (in language) valued(name, value string) string {
	return in.say("%s (%s)", "%s（%s）", name, value)
}

// terms are the English and the Chinese words for names in the raw figures. Names that are not here are the same in
// both languages.
var terms = map[string][2]string{
	peerAdd:          {"one atomic add", "一次原子加"},
	wayPreset:        {"a key set before", "预先填好的主键"},
	kindV7:           {"UUIDv7 in 16 bytes", "16 字节 UUIDv7"},
	kindV4:           {"UUIDv4 in 16 bytes", "16 字节 UUIDv4"},
	kindV7Text:       {"UUIDv7 as text", "文本 UUIDv7"},
	kindV4Text:       {"UUIDv4 as text", "文本 UUIDv4"},
	orderV7:          {"UUIDv7 of google/uuid", "google/uuid 的 UUIDv7"},
	orderGofrs:       {"UUIDv7 of gofrs/uuid", "gofrs/uuid 的 UUIDv7"},
	orderRolling:     {"uidplugin in a rolling restart", "滚动重启中的 uidplugin"},
	policyDisposable: {"disposable worker ids", "一次性 worker id"},
	policyPerTable:   {"a row for each process and table", "每个进程的每张表一行"},
	"making":         {"making ids", "生成 id"},
	"create":         {"creating rows", "创建记录"},
	"rows":           {"rows in databases", "写入数据库"},
	"order":          {"order", "顺序"},
	"coordination":   {"coordination", "协调"},
	"starting":       {"starting", "启动"},
	"whole":          {"whole", "完整"},
	"short":          {"short", "简短"},
	"tiny":           {"tiny", "极简"},
}

// name returns the word for a name in the raw figures.
func (in language) name(raw string) string {
	if both, ok := terms[raw]; ok {
		return both[in]
	}
	return raw
}

// page returns the file of the document in the language: Chinese pages are in a folder of their own.
func (in language) page(document string) string {
	if in == inChinese {
		return filepath.Join(filepath.Dir(document), "zh", filepath.Base(document))
	}
	return document
}

// up is how links lead from a page to the folder of the English one.
func (in language) up() string { return in.say("", "../") }

// marks are the punctuation of Chinese after which a line may end.
const marks = "，。；：、？！）”"

// wrap breaks paragraphs and items of lists into lines of at most width columns, and leaves tables, headings,
// pictures and code as they are.
func wrap(text string, width int) string {
	var lines []string
	var words []string
	indent := ""
	flush := func() {
		line := indent
		for i, word := range words {
			space := ""
			if last, _ := utf8.DecodeLastRuneInString(line); i > 0 && !strings.ContainsRune(marks, last) {
				space = " "
			}
			if i > 0 && columns(line+space+word) > width {
				lines = append(lines, line)
				line, space = strings.Repeat(" ", len(indent)), ""
			}
			line += space + word
		}
		if len(words) > 0 {
			lines = append(lines, line)
		}
		words, indent = nil, ""
	}
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if strings.HasPrefix(line, "```") {
			code = !code
			flush()
			lines = append(lines, line)
			continue
		}
		switch {
		case code:
			lines = append(lines, line)
		case line == "":
			flush()
			if len(lines) > 0 && lines[len(lines)-1] != "" {
				lines = append(lines, "")
			}
		case strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "!["):
			flush()
			lines = append(lines, line)
		case strings.HasPrefix(line, "* "):
			flush()
			indent, words = "* ", pieces(line[2:])
		default:
			words = append(words, pieces(line)...)
		}
	}
	flush()
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// pieces returns what a line may not break: words, and Chinese up to the next mark.
func pieces(line string) (all []string) {
	for _, word := range strings.Fields(line) {
		begin := 0
		for i, r := range word {
			end := i + utf8.RuneLen(r)
			next, _ := utf8.DecodeRuneInString(word[end:])
			if strings.ContainsRune(marks, r) && end < len(word) && !strings.ContainsRune(marks+"*（", next) {
				all, begin = append(all, word[begin:end]), end
			}
		}
		all = append(all, word[begin:])
	}
	return all
}

// columns returns how wide a text is: Chinese takes two columns for a character.
func columns(s string) (n int) {
	for _, r := range s {
		n++
		if unicode.Is(unicode.Han, r) || strings.ContainsRune(marks+"（“", r) {
			n++
		}
	}
	return n
}
