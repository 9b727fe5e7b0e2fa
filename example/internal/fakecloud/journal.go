// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package fakecloud

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// A journal is the file cloud.jsonl, to which each change adds a line: so it is
// quick, and whenever the program is killed all but the last line is whole. It
// is written anew, beside the old one and then renamed, when it is opened and
// when most of its lines are of the past.
//
// It outlives the program, not a failure of the power: nothing is synced.
type journal struct {
	dir   string
	lock  *os.File
	file  *os.File
	lines int
}

const journalName = "cloud.jsonl"

func openJournal(dir string) (*journal, map[cloud.ID]*record, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, nil, err
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, nil, fmt.Errorf("folder %s is in use by another program: %w", dir, err)
	}
	j := &journal{dir: dir, lock: lock}
	records, err := readJournal(filepath.Join(dir, journalName))
	if err == nil {
		err = j.rewrite(records)
	}
	if err != nil {
		return nil, nil, errors.Join(err, j.close())
	}
	return j, records, nil
}

// readJournal returns what is there after all lines. A file that does not exist
// has none.
func readJournal(path string) (map[cloud.ID]*record, error) {
	records := map[cloud.ID]*record{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return records, nil
	}
	if err != nil {
		return nil, err
	}
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			break // the program was killed as it wrote this
		}
		data = rest
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if r.Gone {
			delete(records, r.ID)
		} else {
			records[r.ID] = &r
		}
	}
	return records, nil
}

// write adds a line. After an error nothing was added.
func (j *journal) write(r *record, live map[cloud.ID]*record) error {
	if j.lines > 4*len(live)+1000 {
		if err := j.rewrite(live); err != nil {
			return err
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	n, err := j.file.Write(append(line, '\n'))
	if err != nil {
		// Half a line in the middle would make the file unreadable.
		if end, errSeek := j.file.Seek(int64(-n), 1); errSeek == nil {
			_ = j.file.Truncate(end)
		}
		return err
	}
	j.lines++
	return nil
}

func (j *journal) rewrite(live map[cloud.ID]*record) error {
	path := filepath.Join(j.dir, journalName)
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	lines := json.NewEncoder(w)
	byVersion := func(a, b *record) int { return int(a.Version - b.Version) }
	for _, r := range slices.SortedFunc(maps.Values(live), byVersion) {
		if err = lines.Encode(r); err != nil {
			break
		}
	}
	err = errors.Join(err, w.Flush())
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if j.file != nil {
		err = j.file.Close()
	}
	j.file, j.lines = file, len(live)
	return err
}

func (j *journal) close() error {
	var err error
	if j.file != nil {
		err = j.file.Close()
	}
	return errors.Join(err, j.lock.Close())
}
