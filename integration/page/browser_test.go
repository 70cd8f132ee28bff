package page_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// chromium returns the path of the browser; "" if there is none.
func chromium() string {
	for _, name := range []string{os.Getenv("UID_TEST_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

// A tab is the window of a browser of its own.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	messages []string // of the console, and of the browser itself
}

// open returns a new tab. Without a browser the test is left out; with CI=true it fails.
func open(t *testing.T) *tab {
	t.Helper()
	path := chromium()
	if path == "" {
		testkit.LeftOut(t, "there is no chromium; as root, integration/servers.sh install chromium installs it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	ctx, cancelAllocator := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancelAllocator) // waits until the browser has ended
	ctx, cancelBrowser := chromedp.NewContext(ctx, chromedp.WithErrorf(t.Logf))
	t.Cleanup(cancelBrowser)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // all its processes end, and leave no folder
	b := &tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		switch event := event.(type) {
		case *cdplog.EventEntryAdded:
			b.note("%s: %s %s", event.Entry.Source, event.Entry.Text, event.Entry.URL)
		case *runtime.EventConsoleAPICalled:
			for _, arg := range event.Args {
				b.note("console: %s", arg.Value)
			}
		case *runtime.EventExceptionThrown:
			b.note("exception: %s", event.ExceptionDetails.Text)
		}
	})
	// Chromium runs this in spite of the policy of the page.
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(
			`document.addEventListener("securitypolicyviolation", e => console.log("CSP", e.violatedDirective))`).Do(ctx)
		return err
	}))
	b.resize(1280, 800)
	return b
}

func (b *tab) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages = append(b.messages, fmt.Sprintf(format, args...))
}

// take returns the messages of the browser since the last call, except the status of a requested page.
func (b *tab) take() (messages []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		if !strings.HasPrefix(m, "network: Failed to load resource: the server responded with a status of 40") {
			messages = append(messages, m)
		}
	}
	b.messages = nil
	return messages
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	testkit.Must(b.t, chromedp.Run(b.ctx, actions...))
}

// visit opens a page.
func (b *tab) visit(url string) {
	b.t.Helper()
	b.run(chromedp.Navigate(url))
}

// resize sets the size of the window, in CSS pixels.
func (b *tab) resize(width, height int64) { b.run(chromedp.EmulateViewport(width, height)) }

// colours makes the system's colours dark or light.
func (b *tab) colours(scheme string) {
	feature := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: scheme}
	b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{feature}))
}

// eval returns the value of an expression of JavaScript.
func eval[T any](b *tab, expression string) (value T) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &value))
	return value
}

// text returns what a reader sees of an element.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// click clicks a link and waits for its page.
func (b *tab) click(selector string) {
	b.t.Helper()
	_, err := chromedp.RunResponse(b.ctx, chromedp.Click(selector, chromedp.ByQuery))
	testkit.Must(b.t, err)
}

// lookUp types an id into the form, and presses Enter.
func (b *tab) lookUp(id string) {
	b.t.Helper()
	eval[any](b, `document.querySelector("#id").select()`) // what is typed takes the place of what is there
	_, err := chromedp.RunResponse(b.ctx, chromedp.SendKeys("#id", id+"\r", chromedp.ByQuery))
	testkit.Must(b.t, err)
}

// testTimeout bounds what a test waits for.
const testTimeout = time.Minute
