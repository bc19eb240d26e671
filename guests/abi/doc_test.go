package abi_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/abi"
)

// section returns the part of ABI.md from a heading to the next one of the same
// or a higher level.
func section(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("ABI.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("ABI.md has no heading %q", heading)
	}
	level := strings.Count(strings.Fields(heading)[0], "#")
	end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{1,%d} `, level)).FindStringIndex(rest)
	if end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// rows returns the trimmed cells of the rows of all tables in a text, headings
// and lines excepted.
func rows(text string) [][]string {
	var all [][]string
	heading := true
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			heading = true
			continue
		}
		if heading || strings.HasPrefix(line, "|---") {
			heading = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		all = append(all, cells)
	}
	return all
}

func TestFunctionTableIsThatOfTheCode(t *testing.T) {
	var documented []abi.Function
	for _, row := range rows(section(t, "## 7. Functions")) {
		if len(row) != 2 || !regexp.MustCompile(`^[a-z_]+$`).MatchString(row[0]) || strings.HasPrefix(row[1], "the ") {
			continue
		}
		f := abi.Function{Name: row[0]}
		for parameter := range strings.SplitSeq(row[1], ",") {
			kind := abi.I32
			if strings.HasSuffix(parameter, " i64") {
				kind = abi.I64
			}
			f.Params = append(f.Params, kind)
		}
		documented = append(documented, f)
	}
	if diff := cmp.Diff(abi.Functions(), documented); diff != "" {
		t.Errorf("ABI.md differs from Functions (-code +text):\n%s", diff)
	}
}

func TestEveryFunctionIsDescribed(t *testing.T) {
	text := section(t, "## 7. Functions")
	for _, f := range abi.Functions() {
		described := strings.Contains(text, "**`"+f.Name+"(") ||
			strings.Contains(section(t, "### 7.8 Reservations and caches"), "`"+f.Name+"`")
		if !described {
			t.Errorf("section 7 does not describe %s", f.Name)
		}
	}
}

func TestCodeTableIsThatOfTheCode(t *testing.T) {
	last := abi.Code(0)
	for _, row := range rows(section(t, "## 5. Codes")) {
		number, err := strconv.Atoi(row[0])
		if err != nil {
			t.Fatal(err)
		}
		code := abi.Code(number)
		if code != last-1 {
			t.Errorf("row %d follows row %d", code, last)
		}
		if code.String() != row[1] {
			t.Errorf("%d is %s in the text and %s in the code", code, row[1], code)
		}
		last = code
	}
	if (last - 1).Valid() {
		t.Errorf("code %d is not in the text", last-1)
	}
}

func TestCodeCommentsSayWhatTheTextSays(t *testing.T) {
	comments := constants(t, "code.go")
	for _, row := range rows(section(t, "## 5. Codes")) {
		name := strings.ReplaceAll(row[1], "_", " ")
		name = strings.ReplaceAll(title(name), " ", "")
		if comments[name] != row[2] {
			t.Errorf("%s: the code says %q, the text %q", row[1], comments[name], row[2])
		}
	}
}

// title capitalizes every word.
func title(s string) string {
	words := strings.Fields(s)
	for i, w := range words {
		words[i] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, " ")
}

// constants returns the constants of a file and the comments behind them.
func constants(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, name := range spec.Names {
				found[name.Name] = strings.TrimSpace(spec.Comment.Text())
			}
		}
		return true
	})
	return found
}

func TestFieldTableIsThatOfTheCode(t *testing.T) {
	tags := map[string]abi.Tag{
		"Method": abi.FieldMethod, "Target": abi.FieldTarget, "Protocol": abi.FieldProtocol, "Remote": abi.FieldRemote,
		"Host": abi.FieldHost, "Scheme": abi.FieldScheme, "Header": abi.FieldHeader, "PathValue": abi.FieldPathValue,
		"RequestID": abi.FieldRequestID, "Route": abi.FieldRoute, "ContentLength": abi.FieldContentLength,
		"Body": abi.FieldBody, "Timeout": abi.FieldTimeout, "Lease": abi.FieldLease, "Status": abi.FieldStatus,
		"TTL": abi.FieldTTL, "Wait": abi.FieldWait, "RenewEvery": abi.FieldRenewEvery,
	}
	for name := range constants(t, "wire.go") {
		if short, ok := strings.CutPrefix(name, "Field"); ok && tags[short] == 0 {
			t.Errorf("%s is missing in this test", name)
		}
	}
	documented := make(map[string]abi.Tag)
	for _, row := range rows(section(t, "### 6.2 Fields")) {
		number, err := strconv.ParseUint(row[0], 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		documented[row[1]] = abi.Tag(number)
	}
	if diff := cmp.Diff(tags, documented); diff != "" {
		t.Errorf("ABI.md differs from the tags (-code +text):\n%s", diff)
	}
}

func TestNumbersOfTheTextAreThoseOfTheCode(t *testing.T) {
	cases := []struct {
		heading string
		want    string
	}{
		{"## 3. Calls", fmt.Sprintf("have 1 to %d bytes", abi.MaxName)},
		{"## 3. Calls", fmt.Sprintf("Bit 0 (value %d)", abi.FlagNoBlock)},
		{"## 4. Handles", fmt.Sprintf("| %d | the request's body", abi.HandleRequestBody)},
		{"## 4. Handles", fmt.Sprintf("| %d | the response's body", abi.HandleResponseBody)},
		{"## 4. Handles", fmt.Sprintf("| %d | the function's lease", abi.HandleFunctionLease)},
		{"## 4. Handles", fmt.Sprintf("At most %d handles", abi.MaxHandles)},
		{"### 6.2 Fields", fmt.Sprintf("(%#x)", uint16(abi.TagOptional))},
		{"### 7.1 Host and request", fmt.Sprintf("%d bytes, then the text", abi.ErrorSize)},
		{"### 7.1 Host and request", fmt.Sprintf("writes %d bytes and answers 0", abi.StatusSize)},
		{"### 7.1 Host and request", fmt.Sprintf("flags: %d the client has gone away; %d the client has been answered without this guest; %d the function's lease",
			abi.StatusCanceled, abi.StatusLate, abi.StatusLeaseLost)},
		{"### 7.1 Host and request", fmt.Sprintf("%d debug, %d info,\n%d warn, %d error", abi.LogDebug, abi.LogInfo, abi.LogWarn, abi.LogError)},
		{"### 7.1 Host and request", fmt.Sprintf("kind %d is the environment of the manifest, kind %d its secrets", abi.ConfigEnv, abi.ConfigSecret)},
		{"### 7.2 wait", fmt.Sprintf("multiple of %d", abi.WaitSize)},
		{"### 7.2 wait", fmt.Sprintf("interest: %d read, %d write", abi.WaitRead, abi.WaitWrite)},
		{"### 7.2 wait", fmt.Sprintf("*Failed* (%d)", abi.WaitFailed)},
		{"### 7.5 Calls", fmt.Sprintf("`body` %d: none. %d: the field Body, which must be there. %d: streamed", abi.BodyNone, abi.BodyInline, abi.BodyStream)},
		{"### 7.5 Calls", fmt.Sprintf("%d success, %d failure, %d canceled (the caller gave up: no verdict), %d excluded",
			abi.OutcomeSuccess, abi.OutcomeFailure, abi.OutcomeCanceled, abi.OutcomeExcluded)},
		{"### 7.6 Leases", fmt.Sprintf("writes %d bytes", abi.LeaseSize)},
		{"## 2. Serving a request", fmt.Sprintf("| %d | done; the instance may serve again |", abi.HandleDone)},
		{"## 2. Serving a request", fmt.Sprintf("| %d | done; discard this instance |", abi.HandleRetire)},
		{"## 8. Limits", fmt.Sprintf("1 to %d bytes", abi.MaxName)},
		{"## 8. Limits", "| " + thousands(abi.MaxLogLine) + " bytes | cut off"},
		{"## 8. Limits", "a state value | " + thousands(abi.MaxState) + " bytes"},
		{"## 8. Limits", "inline body included | " + thousands(abi.MaxHead) + " bytes"},
		{"## 8. Limits", fmt.Sprintf("open handles of a request | %d", abi.MaxHandles)},
	}
	for _, c := range cases {
		if !strings.Contains(section(t, c.heading), c.want) {
			t.Errorf("section %q does not say %q", c.heading, c.want)
		}
	}
}

func thousands(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }

func TestFeatureTableIsThatOfTheCode(t *testing.T) {
	features := map[string]int{
		"fetch": abi.FeatureFetch, "admit": abi.FeatureBreaker, "lease_acquire": abi.FeatureLease, "state_get": abi.FeatureState,
		"reserve": abi.FeatureReservation, "cache_get": abi.FeatureCache, "trailers": abi.FeatureTrailers,
	}
	documented := make(map[string]int)
	for _, row := range rows(section(t, "### 7.1 Host and request")) {
		if number, err := strconv.Atoi(row[0]); err == nil && len(row) == 2 {
			first, _, _ := strings.Cut(row[1], ",")
			documented[first] = number
		}
	}
	if diff := cmp.Diff(features, documented); diff != "" {
		t.Errorf("ABI.md differs from the features (-code +text):\n%s", diff)
	}
}

// example returns the bytes of the block that follows the marker of that name.
func example(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("ABI.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<!-- example: "+name+" -->\n```\n")
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatalf("ABI.md has no example %q", name)
	}
	var digits string
	for line := range strings.Lines(block) {
		if regexp.MustCompile(`^[0-9a-f]{2} `).MatchString(line) {
			digits += strings.Join(strings.Fields(line), "")
		}
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestExamplesAreWhatTheCodeWrites(t *testing.T) {
	head := abi.AppendPair(nil, abi.FieldHeader, "Content-Type", "text/plain")
	head = abi.AppendPair(head, abi.FieldHeader, "Set-Cookie", "a=1; b=2")
	wait := make([]byte, 0, 2*abi.WaitSize)
	for _, word := range []uint32{4, abi.WaitRead, abi.WaitRead, abi.HandleResponseBody, abi.WaitWrite, 0} {
		wait = binary.LittleEndian.AppendUint32(wait, word)
	}
	cases := []struct {
		name string
		want []byte
	}{
		{"response head", head},
		{"lease options", abi.AppendNumber(nil, abi.FieldTTL, 15e9)},
		{"failure", abi.AppendFailure(nil, abi.Failure{Code: abi.LeaseBusy, RetryAfter: 2e9, Text: "held"})},
		{"wait", wait},
	}
	for _, c := range cases {
		if got := example(t, c.name); !bytes.Equal(got, c.want) {
			t.Errorf("%s:\ntext % x\ncode % x", c.name, got, c.want)
		}
	}
	if want := fmt.Sprintf("response_head(200, p, %d, 0)", len(head)); !strings.Contains(section(t, "### 6.1 Encoding"), want) {
		t.Errorf("the example is not introduced by %s", want)
	}
}
