package docs_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
)

// eachChinese calls f for each document that is in Chinese.
func eachChinese(t *testing.T, f func(t *testing.T, d *document)) {
	t.Helper()
	eachOf(t, func(d *document) bool { return chinese(d.name) }, f)
}

// columns returns how wide a text is: characters of Chinese, and its punctuation, take two columns.
func columns(s string) (n int) {
	for _, r := range s {
		n++
		if r >= 0x2E80 {
			n++
		}
	}
	return n
}

// Browsers show the end of a line as a space. So a line ends where a space does no harm: at one, or after punctuation.
func TestChineseProse_LinesFitAScreen(t *testing.T) {
	t.Parallel()
	const most = 120
	eachChinese(t, func(t *testing.T, d *document) {
		number, output := 0, false // as in TestProse_LinesFitAScreen
		for line := range strings.Lines(string(d.source)) {
			number++
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "```") {
				output = line == "```text"
			}
			if n := columns(line); n > most && !output && !strings.HasPrefix(line, "|") && !strings.Contains(line, "://") {
				t.Errorf("%s:%d: %d columns, at most %d", d.name, number, n, most)
			}
			if strings.TrimRight(line, " \t") != line {
				t.Errorf("%s:%d: spaces at the end", d.name, number)
			}
		}
		for _, line := range d.brokenWords() {
			t.Errorf("%s:%d: a line ends between two Chinese characters", d.name, line)
		}
	})
}

// brokenWords returns the lines of paragraphs that end with a Chinese character while the next one begins with one.
func (d *document) brokenWords() (lines []int) {
	d.walk(func(n ast.Node) bool {
		if n.Kind() != ast.KindParagraph && n.Kind() != ast.KindTextBlock {
			return true
		}
		for i := 1; i < n.Lines().Len(); i++ {
			before, after := n.Lines().At(i-1), n.Lines().At(i)
			last, _ := utf8.DecodeLastRune([]byte(strings.TrimRight(string(before.Value(d.source)), "\n*_])")))
			first, _ := utf8.DecodeRune([]byte(strings.TrimLeft(string(after.Value(d.source)), " *_[")))
			if unicode.Is(unicode.Han, last) && unicode.Is(unicode.Han, first) {
				lines = append(lines, d.line(before.Start))
			}
		}
		return false
	})
	return lines
}

// mistakes are what a typesetter of Chinese would correct. A span of code is one character, \x01.
var mistakes = map[string]*regexp.Regexp{
	"no space between Chinese and Latin text":    regexp.MustCompile(`\p{Han}[A-Za-z0-9\x01]|[A-Za-z0-9\x01%]\p{Han}`),
	"a half-width mark next to Chinese":          regexp.MustCompile(`\p{Han} ?[,;:?!(]|[,;:?!)] ?\p{Han}|\p{Han}\.|"`),
	"a space next to a full-width mark":          regexp.MustCompile(` [，。；：、？！（）“”]|[，。；：、？！（）“] `),
	"a mark of emphasis that Markdown left over": regexp.MustCompile(`\*`),
	"no Chinese ellipsis":                        regexp.MustCompile(`\p{Han}\.\.\.|\. \. \.|。。`),
}

// fullMark is the end of a line after punctuation: the space is the browser's.
var fullMark = regexp.MustCompile(`([，。；：、？！）]) `)

func TestChineseProse_IsTypeset(t *testing.T) {
	t.Parallel()
	eachChinese(t, func(t *testing.T, d *document) {
		for _, p := range d.passages() {
			for _, what := range typeset(p.text) {
				t.Errorf("%s:%d: %s: %s", d.name, p.line, what, p.full)
			}
		}
	})
}

// typeset returns what is wrong with a text.
func typeset(text string) (wrong []string) {
	text = fullMark.ReplaceAllString(strings.ReplaceAll(text, " &nbsp;", ""), "$1")
	for what, mistake := range mistakes {
		if found := mistake.FindString(text); found != "" {
			wrong = append(wrong, fmt.Sprintf("%s (%q)", what, found))
		}
	}
	return wrong
}

var chineseEnd = regexp.MustCompile(`[。！？；：]`)

// length returns how long a text is to read: a Chinese character is one, and so are a Latin word and a span of code.
func length(s string) (n int) {
	latin := false
	for _, r := range s {
		switch {
		case unicode.Is(unicode.Han, r):
			n, latin = n+1, false
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '\x01':
			if !latin {
				n++
			}
			latin = true
		case strings.ContainsRune(`.,-_/:^'`, r): // within a word
		default:
			latin = false
		}
	}
	return n
}

func TestChineseProse_SentencesAreShort(t *testing.T) {
	t.Parallel()
	const most = 45 // about 25 words of English
	eachChinese(t, func(t *testing.T, d *document) {
		for _, p := range d.passages() {
			for _, s := range chineseEnd.Split(p.text, -1) {
				if n := length(s); n > most {
					s = strings.ReplaceAll(s, code, "`...`")
					t.Errorf("%s:%d: a sentence of %d characters, at most %d: %s", d.name, p.line, n, most, s)
				}
			}
			if p.cell && strings.Contains(strings.TrimSuffix(p.text, "。"), "。") {
				t.Errorf("%s:%d: a cell with several sentences: %s", d.name, p.line, p.full)
			}
		}
	})
}

func TestChineseReadme_IsShort(t *testing.T) {
	t.Parallel()
	const most = 1400 // about as long to read as 900 words of English
	d, err := read(root + "/README_zh.md")
	must(t, err)
	n := 0
	for _, p := range d.passages() {
		n += length(p.full)
	}
	if n > most || n < most/4 {
		t.Errorf("README_zh.md has %d characters, at most %d", n, most)
	}
}

// otherWords are words that mean the same as one of the glossary. A reader would look for a difference.
var otherWords = map[string]string{
	`续约|续期|心跳`: "续租",
	`租期|租赁`:    "租约",
	`号码段|号码池`:  "号段",
	`机器号|机器 ?id|节点号|工作节点|workerId 号`: "worker id",
	`座位|插槽|槽(?:$|[^位])`:              "槽位",
	`车道|泳道`:                          "通道",
	`时钟(?:回退|倒退|后退)|回调时钟|回拨时钟`:       "时钟回拨",
	`雪花(?:$|[^算])`:                   "雪花算法",
	`注册表|注册中心|登记库`:                   "注册库",
	`命名空间|ID 空间|id 域`:                "id 空间",
	`时间片|滴答`:                         "刻度",
	`隔离令牌|围栏`:                        "栅栏",
	`公共 id|对外 id`:                    "公开 id",
	`回收槽位|抢占`:                        "接手",
	`唯一键冲突|主键冲突`:                     "主键重复",
	`您`:                              "你",
	`登陆|帐|阀值|事物`:                     "the right character",
}

func TestChineseProse_OneWordForOneThing(t *testing.T) {
	t.Parallel()
	eachChinese(t, func(t *testing.T, d *document) {
		for word, instead := range otherWords {
			pattern := regexp.MustCompile(word)
			for _, p := range d.passages() {
				if found := pattern.FindString(p.text); found != "" {
					t.Errorf("%s:%d: %q: write %s: %s", d.name, p.line, found, instead, p.full)
				}
			}
		}
	})
}

// The control: each rule notices what it is for, and passes what is right.
func TestChineseProse_MistakesAreNoticed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"每个 id 有 64 位（" + code + "），见 [架构]。": 0,
		"约 80 % 的行，1.5 倍，2^53-1；v1.2.3 起……":  0,
		"换行。 以后，\x01 也行":                     0,
		"每个id":                               1,
		"用" + code + "即可":                    1,
		"是的,":                                1,
		"行(表)":                               1,
		"行， 表":                               0,
		"行 ，表":                               1,
		"**行。**表":                            1,
		"他说\"行\"":                            1,
		"等等。。":                               1,
	} {
		if got := typeset(text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int{"每 3.3 秒一条 UPDATE。": 6, "用 \x01、\x01": 3, "": 0} {
		if got := length(text); got != want {
			t.Errorf("%q is %d long, want %d", text, got, want)
		}
	}
	if n := columns("号段 id，"); n != 9 {
		t.Errorf("%d columns, want 9", n)
	}
	d := parse("a.md", []byte("号段\n号段，\n号段 id\n号段\n\n* 号\n  段\n\n|a|\n|-|\n|号|\n|段|\n"))
	if got := fmt.Sprint(d.brokenWords()); got != "[1 6]" {
		t.Errorf("broken lines %s", got)
	}
}
