package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// Sources are the files of an app's directory that its modules may be made of:
// all but the modules themselves, hidden files, and what package managers and
// editors leave there.
type sources struct {
	dir     string
	outputs map[string]bool // paths of modules
	made    bool            // the newest attempt to build left all outputs there
	watcher *fsnotify.Watcher
}

// watchSources begins to watch the sources of an app. The caller closes the
// watcher.
func watchSources(a *app) (*sources, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", a.dir, err)
	}
	s := &sources{dir: a.dir, watcher: watcher}
	s.exclude(a)
	if err := s.add(a.dir); err != nil {
		return nil, errors.Join(err, watcher.Close())
	}
	return s, nil
}

// exclude takes the modules of an app out of its sources.
func (s *sources) exclude(a *app) {
	s.outputs = map[string]bool{}
	for _, f := range a.manifest.Functions {
		s.outputs[a.path(f.Module)] = true
	}
}

// conclude notes what an attempt to build has left, and watches where the outputs
// are: that may be a directory of its own, which is no source.
func (s *sources) conclude() {
	s.made = !s.missing()
	for output := range s.outputs {
		_ = s.watcher.Add(filepath.Dir(output)) // without it a deletion is missed
	}
}

// missing reports whether an output is not there.
func (s *sources) missing() bool {
	for output := range s.outputs {
		if _, err := os.Stat(output); errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// lost reports whether an output has been deleted since the newest attempt to
// build. One that this attempt did not make is not lost: trying again without a
// change would go on for ever.
func (s *sources) lost() bool { return s.made && s.missing() }

// add watches a directory and those below it.
func (s *sources) add(dir string) error {
	err := s.walk(dir, func(path string, entry fs.DirEntry) error {
		if entry.IsDir() {
			return s.watcher.Add(path)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("watching %s: %w", dir, err)
	}
	return nil
}

// walk visits the sources and their directories. Files may vanish on the way.
func (s *sources) walk(dir string, visit func(string, fs.DirEntry) error) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != s.dir:
			return nil
		case err != nil:
			return err
		case path != s.dir && s.ignored(path) && entry.IsDir():
			return fs.SkipDir
		case path != s.dir && s.ignored(path):
			return nil
		}
		return visit(path, entry)
	})
}

// ignored reports whether a path is no source.
func (s *sources) ignored(path string) bool {
	name := filepath.Base(path)
	return s.outputs[path] || strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") ||
		strings.HasPrefix(name, "#") || name == "node_modules" || name == "target"
}

// changed reports whether an event is about a source, or about an output that may
// have been deleted, and watches directories that are new.
func (s *sources) changed(event fsnotify.Event) bool {
	path := filepath.Clean(event.Name)
	if s.outputs[path] {
		return event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)
	}
	if event.Op == fsnotify.Chmod || s.ignored(path) {
		return false
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		// A directory that cannot be watched is one whose changes are missed,
		// which is no reason to miss this one.
		_ = s.add(path)
	}
	return true
}

// digest identifies the contents of all sources. It is what keeps a build that
// writes among its own sources from starting the next one for ever.
func (s *sources) digest() ([sha256.Size]byte, error) {
	hash := sha256.New()
	err := s.walk(s.dir, func(path string, entry fs.DirEntry) error {
		if !entry.Type().IsRegular() {
			return nil
		}
		fmt.Fprintf(hash, "%d %s\n", len(path), path)
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // it was only read
		n, err := io.Copy(hash, file)
		fmt.Fprintf(hash, " %d\n", n)
		return err
	})
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("reading the sources: %w", err)
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}
