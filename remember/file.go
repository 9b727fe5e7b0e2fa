// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
)

// A File remembers items and versions in a file, which survives the end of the
// process at any moment. Path is required; the fields are not to be changed after
// Open. All methods may be called from any goroutine.
//
// Items and versions that are strings are kept as they are, others as JSON. What
// does not come back from that equal to what it was is refused with an error: a
// struct with fields that are not exported, a time that is not in UTC. An item and
// its version together may have a megabyte. Methods that make JSON of them, or read
// it, must not call the File.
//
// While it is open the file must stay where it is. That it was moved away, removed
// or replaced is an error of the next Begin that waits for the disk, or of Close.
//
// Everything that is remembered is in memory too. When most of the file is out of
// date, the call that finds it so writes it anew, and all others wait.
type File[T, V comparable] struct {
	// Path is where the file is, or a symbolic link to it. Beside the file there
	// is a lock, its name with .lock, and at times the next file, with .new.
	Path string

	// NoSync makes Begin not wait until the disk has it. What was remembered then
	// still survives the end of the process, but the last calls may be lost when
	// the machine loses power: what a run did that had begun may be forgotten.
	NoSync bool

	disk  disk // nil means that of the operating system
	slack int  // records that are put up with in any log; 0 means 1024
	item  codec[T]
	ver   codec[V]

	syncing sync.Mutex // held for an fsync, and to change file; before mu

	mu      sync.Mutex // guards the fields below
	path    string     // with no symbolic link
	entries map[T]entry[V]
	file    file // nil if it is not open
	lock    io.Closer
	err     error  // why nothing can be written any more
	size    int64  // of the file
	safe    int64  // how much of it the disk has
	records int    // in the file, without checkpoints
	checked bool   // the last record in the file is a checkpoint
	allowed int    // records, before it is written anew
	written uint64 // calls that were written, since Open
	synced  uint64 // how many of these the disk has
}

// entry is what is remembered of an item.
type entry[V comparable] struct {
	version V
	begun   uint64 // by which call; 0 if it is done
}

// errNotOpen is returned before Open and after Close.
var errNotOpen = errors.New("not open")

// errMoved is returned when what is written would not be found again.
var errMoved = errors.New("the file was moved away, removed or replaced")

// maxRecord is how long an item and its version may be, as they are kept.
const maxRecord = 1 << 20

// Open reads the file, or makes it if it is not there; its folder must be. What the
// end of a process or a loss of power left half written is cut off. It returns an
// error, and leaves the file as it is, if it is damaged otherwise (anywhere before
// the last Open, Close, rewrite or Begin that the disk has), is no such file or
// no regular one, or is open already, in this process or in another one of this machine; on
// Windows, Solaris, AIX and Plan 9 that is for the caller to see to.
func (f *File[T, V]) Open() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.Path == "":
		return errors.New("remember: File.Path is required, and empty")
	case f.file != nil:
		return f.wrap("open", errors.New("open already"))
	}
	if f.disk == nil {
		f.disk = osDisk{}
	}
	var err error
	if f.path, err = f.disk.resolve(f.Path); err != nil {
		return f.wrap("open", err)
	}
	f.err = nil
	lock, err := f.disk.lock(f.path + ".lock")
	if err != nil {
		return f.wrap("open", err)
	}
	if err := f.load(); err != nil {
		lock.Close()
		f.file, f.entries = nil, nil
		return f.wrap("open", err)
	}
	f.lock = lock
	return nil
}

// load makes the entries of the file, and opens it to be written to.
func (f *File[T, V]) load() error {
	var err error
	if f.item, err = newCodec[T](); err != nil {
		return err
	}
	if f.ver, err = newCodec[V](); err != nil {
		return err
	}
	f.entries = make(map[T]entry[V])
	f.checked = false
	f.records, f.written, f.synced = 0, 1, 0 // the first call stands for what is there
	data, err := f.disk.read(f.path)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return f.rewrite()
	}
	size, err := scan(data, f.apply)
	if err != nil {
		return err
	}
	f.size = int64(size)
	if f.file, err = f.disk.append(f.path); err != nil {
		return err
	}
	if size < len(data) {
		err = f.file.Truncate(f.size)
	}
	if err == nil { // what was written before, the disk may not have
		err = f.file.Sync()
	}
	if err == nil { // nor the name, if that process ended in rewrite
		err = f.disk.syncDir(f.path)
	}
	if err != nil {
		f.file.Close()
		return err
	}
	f.safe, f.synced = f.size, f.written
	f.allow()
	f.checkpoint()
	return nil
}

// checkpoint notes that the disk has all that is in the file. That it cannot be
// written costs no more than what it is for: the file is cut off before it.
func (f *File[T, V]) checkpoint() {
	if f.checked || f.err != nil {
		return
	}
	text := checkpoint(f.records).append(nil)
	if _, err := f.file.Write(text); err != nil {
		if cut := f.file.Truncate(f.size); cut != nil {
			f.err = fmt.Errorf("after a write that failed (%w): %w", err, cut)
		}
		return
	}
	f.size += int64(len(text))
	f.checked = true
}

// apply does to the entries what a record says.
func (f *File[T, V]) apply(r record) error {
	f.checked = r.verb == checked
	if f.checked {
		if n, _ := binary.Uvarint(r.version); n != uint64(f.records) {
			return fmt.Errorf("%d records are before it, want %d: some are missing", f.records, n)
		}
		return nil
	}
	item, err := f.item.decode(r.item)
	if err != nil {
		return fmt.Errorf("item %q: %w", r.item, err)
	}
	f.records++
	switch r.verb {
	case began:
		f.entries[item] = entry[V]{begun: f.written}
	case forgot:
		delete(f.entries, item)
	default:
		version, err := f.ver.decode(r.version)
		if err != nil {
			return fmt.Errorf("version %q of item %q: %w", r.version, r.item, err)
		}
		f.entries[item] = entry[V]{version: version}
	}
	return nil
}

// Begin notes that a run is about to have effects: from then on the item is
// remembered, with no version. It returns when the disk has it; calls that wait at
// the same time share that. An item that is begun already costs nothing. After an
// error the run must not go on.
func (f *File[T, V]) Begin(item T) error {
	return f.note("begin", item, began, entry[V]{})
}

// Done notes that the item was handled at a version, the one that was read before
// the work. It does not wait for the disk: what is lost is run again. The zero
// version is an error: it is that of an item that has begun.
func (f *File[T, V]) Done(item T, version V) error {
	var none V
	if version == none {
		return fmt.Errorf("remember: done %s: the version is the zero one, want that of what was handled", brief(item))
	}
	return f.note("done", item, did, entry[V]{version: version})
}

// Forget notes that the item is gone, and all that was made for it. It does not
// wait for the disk. Forget of an item that is not remembered does nothing.
func (f *File[T, V]) Forget(item T) error {
	return f.note("forget", item, forgot, entry[V]{})
}

// Version returns the version at which the item was handled; false if it was not,
// or if it has begun again since.
func (f *File[T, V]) Version(item T) (V, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.entries[item]
	return e.version, ok && e.begun == 0
}

// All returns a snapshot of all items, made when the loop begins, in no order. An
// item that has begun and is not done has the zero version. Before Open and after
// Close there are none, so a Tracker is to be fed in between.
func (f *File[T, V]) All() iter.Seq2[T, V] {
	return func(yield func(T, V) bool) {
		f.mu.Lock()
		items := make([]T, 0, len(f.entries))
		versions := make([]V, 0, len(f.entries))
		for item, e := range f.entries {
			items, versions = append(items, item), append(versions, e.version)
		}
		f.mu.Unlock()
		for i, item := range items {
			if !yield(item, versions[i]) {
				return
			}
		}
	}
}

// Close ends the use of the file. What was written is on the disk when it returns
// nil, unless NoSync is set. Closing twice is fine; it may be opened again.
func (f *File[T, V]) Close() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.err
	if err == nil && !f.NoSync {
		if err = f.file.Sync(); err == nil {
			f.checkpoint()
			err = f.err
		}
	}
	if err == nil {
		err = f.disk.isAt(f.file, f.path)
	}
	if closed := f.file.Close(); f.err == nil { // otherwise it may be closed
		err = errors.Join(err, closed)
	}
	err = errors.Join(err, f.lock.Close())
	f.file, f.entries = nil, nil
	if err != nil {
		return f.wrap("close", err)
	}
	return nil
}

// note writes what a call says, unless it is remembered already.
func (f *File[T, V]) note(call string, item T, v verb, e entry[V]) error {
	r, err := f.encode(item, v, e)
	if err != nil {
		return fmt.Errorf("remember: %s %s: %w", call, brief(item), err)
	}
	f.mu.Lock()
	upTo, full, err := f.noteLocked(item, v, e, r)
	f.mu.Unlock()
	if err == nil && v == began && !f.NoSync {
		err = f.flush(upTo)
	}
	if err == nil && full {
		err = f.compact()
	}
	if err != nil {
		return fmt.Errorf("remember: %s %s: %s: %w", call, brief(item), f.Path, err)
	}
	return nil
}

// noteLocked returns the call that has to be on the disk, and whether the file
// is to be written anew.
func (f *File[T, V]) noteLocked(item T, v verb, e entry[V], r record) (upTo uint64, full bool, err error) {
	switch {
	case f.file == nil:
		return 0, false, errNotOpen
	case f.err != nil:
		return 0, false, f.err
	}
	old, known := f.entries[item]
	switch {
	case v == began && known && old.begun > 0:
		return old.begun, false, nil
	case v == did && known && old == e, v == forgot && !known:
		return 0, false, nil
	}
	r.loose = uint64(f.size - f.safe)
	text := r.append(nil)
	if _, err := f.file.Write(text); err != nil {
		// What came before this call is whole, and is to stay so.
		if cut := f.file.Truncate(f.size); cut != nil {
			f.err = fmt.Errorf("after a write that failed (%w): %w", err, cut)
		}
		return 0, false, err
	}
	f.size += int64(len(text))
	f.checked = false
	f.records++
	f.written++
	switch v {
	case began:
		f.entries[item] = entry[V]{begun: f.written}
	case did:
		f.entries[item] = e
	case forgot:
		delete(f.entries, item)
	}
	return f.written, f.records > f.allowed, nil
}

// encode returns the record of a call.
func (f *File[T, V]) encode(item T, v verb, e entry[V]) (r record, err error) {
	f.mu.Lock()
	open := f.file != nil
	f.mu.Unlock()
	if !open {
		return r, errNotOpen
	}
	r.verb = v
	if r.item, err = f.item.encode(item); err != nil {
		return r, fmt.Errorf("the item: %w", err)
	}
	if v == did {
		if r.version, err = f.ver.encode(e.version); err != nil {
			return r, fmt.Errorf("the version %s: %w", brief(e.version), err)
		}
	}
	if n := len(r.item) + len(r.version); n > maxRecord {
		return r, fmt.Errorf("item and version have %d bytes, want %d at most", n, maxRecord)
	}
	return r, nil
}

// flush returns when the disk has a call, and all before it. Of those that wait,
// one does it for all.
func (f *File[T, V]) flush(upTo uint64) error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	f.mu.Lock()
	file, written, size, err := f.file, f.written, f.size, f.err
	have := f.synced >= upTo
	f.mu.Unlock()
	switch {
	case have:
		return nil
	case err != nil:
		return err
	case file == nil:
		return errNotOpen
	}
	err = file.Sync()
	if err == nil {
		err = f.disk.isAt(file, f.path)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		// What the disk has after this, nobody knows; another try may
		// succeed without it.
		f.err = err
		return err
	}
	f.safe, f.synced = size, written
	return nil
}

func (f *File[T, V]) wrap(what string, err error) error {
	return fmt.Errorf("remember: %s %s: %w", what, f.Path, err)
}

// brief returns what an error says of v, which may be a megabyte.
func brief(v any) string {
	const most = 200
	s := fmt.Sprint(v)
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}
