// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"sync"
)

// A File records items and versions in a file, which survives the end of the process at
// any moment. Path is required. The fields must not be changed after Open. All methods
// may be called from any goroutine.
//
// Items and versions that are strings are stored unchanged, all others as JSON. A value
// that JSON does not restore to an equal value is rejected with an error, such as a struct
// with unexported fields, or a time that is not in UTC. Methods that encode or decode
// this JSON must not call the File.
//
// The file must not be a mount point itself, as a file that is bind-mounted into a
// container is. Such a file cannot be replaced, and would grow for ever. Mount its folder
// instead. Open returns an error for it if the file is empty. Otherwise the call returns
// it that finds most of the file out of date.
//
// While it is open, the file must stay in its place. If it was moved, removed or
// replaced, the next Begin that waits for the disk, or Close, returns an error.
//
// All records are in memory too. When most of the file is out of date, the next call
// rewrites it, and all other calls wait.
type File[T, V comparable] struct {
	// Path is the path of the file, or of a symbolic link to it. Other files stand beside
	// it: a lock, with the suffix .lock; during a rewrite the next file, with .new; and,
	// with .cut, the end of the file that the last Open removed, if that was more than
	// half a record.
	Path string

	// NoSync makes Begin not wait for the disk; Open and Close still do. The records
	// survive the end of the process. If the machine loses power, all records since Open
	// may be lost, and so may the fact that a run had begun. Open cannot distinguish
	// damage to these records from such a loss, and removes them.
	NoSync bool

	disk  disk // nil means that of the operating system
	slack int  // records that are put up with in any log; 0 means 1024

	mu      sync.Mutex // guards the fields below
	path    string     // with no symbolic link
	entries map[T]entry[V]
	file    file // nil if it is not open; stays as it is while syncing
	lock    io.Closer
	err     error      // why nothing can be written any more
	size    int64      // of the file, without what a write that failed left
	records int        // in the file
	checked bool       // the last of them says that the disk has all
	allowed int        // records, before it is written anew
	written int64      // bytes so far; never less
	synced  int64      // how many of these the disk has
	syncing bool       // a call waits for the disk, without mu
	idle    *sync.Cond // syncing is false again; another one with each Open
}

// entry is what is remembered of an item.
type entry[V comparable] struct {
	version V     // the zero one if it has begun
	written int64 // by then
}

// Open reads the file, or creates it in its existing folder. It removes a record at the
// end that the end of a process, or a loss of power, left half written. In these cases it
// returns an error, and leaves the file unchanged:
//
//   - The file is damaged anywhere else: before the part that was certainly on the disk
//     when the last record was written, or in all of its records.
//   - It is not a file of this package, or not a regular file.
//   - It is open already, in this process or in another process of this machine. On
//     Windows, Solaris, AIX and Plan 9 the caller must ensure this.
func (f *File[T, V]) Open() error {
	if f.Path == "" {
		return errors.New("remember: File.Path is required, and empty")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.openLocked(); err != nil {
		return fmt.Errorf("remember: open %s: %w", f.Path, err)
	}
	return nil
}

func (f *File[T, V]) openLocked() error {
	f.disk = cmp.Or[disk](f.disk, osDisk{})
	path, err := f.disk.resolve(f.Path)
	if err != nil {
		return err
	}
	lock, err := f.disk.lock(path + ".lock")
	if err != nil {
		return err
	}
	f.path, f.lock = path, lock
	if err := f.load(); err != nil {
		f.file, f.entries = nil, nil
		lock.Close()
		return err
	}
	f.err, f.idle = nil, sync.NewCond(&f.mu)
	return nil
}

// load makes the entries of the file, and opens it to be written to.
func (f *File[T, V]) load() error {
	f.entries = make(map[T]entry[V])
	f.records = 0
	data, err := f.disk.read(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(data) == 0 {
		return f.rewrite()
	}
	size, safe, err := scan(string(data), f.apply)
	if err != nil {
		return err
	}
	if cut := data[size:]; bytes.IndexByte(cut, '\n') >= 0 { // more than a record that is half written
		if err := f.keepAside(cut); err != nil {
			return fmt.Errorf("keep what is damaged: %w", err)
		}
	}
	return f.attach(size, data[min(safe, size):size])
}

// keepAside writes what is cut off from the file beside it, for people to look at.
func (f *File[T, V]) keepAside(cut []byte) error {
	file, err := f.disk.create(f.path+".cut", f.path)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(cut, 0)
	return cmp.Or(err, file.Sync(), file.Close())
}

// apply does to the entries what a record of the file says.
func (f *File[T, V]) apply(r record) (err error) {
	defer refuse(&err)
	f.records++
	if f.checked = r.verb == synced; f.checked {
		return nil
	}
	var version V
	item, err := decode[T](r.item)
	if err == nil && r.verb == done {
		version, err = decode[V](r.version)
	}
	if err != nil {
		return fmt.Errorf("item %s, version %s: %w", brief(r.item), brief(r.version), err)
	}
	f.set(r.verb, item, version)
	return nil
}

func (f *File[T, V]) set(verb string, item T, version V) {
	if verb == forget {
		delete(f.entries, item)
	} else {
		f.entries[item] = entry[V]{version, f.written}
	}
}

// attach opens the file that is at path now, to be written to behind so many bytes.
// The disk may not yet have what was written before, nor the name, if it was renamed.
// If an fsync of a process before failed, the next one may succeed without what that
// was for: so the end of the file, which the disk may not have, is written again.
func (f *File[T, V]) attach(size int64, end []byte) error {
	file, err := f.disk.open(f.path)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(end, size-int64(len(end)))
	if err := cmp.Or(err, file.Truncate(size), file.Sync(), f.disk.syncDir(f.path)); err != nil {
		file.Close()
		return err
	}
	f.file, f.size, f.synced = file, size, f.written
	f.allowed = 2*len(f.entries) + cmp.Or(f.slack, 1024)
	f.checkpoint()
	return nil
}

// Begin records that a run is about to have effects: from then on the item is known,
// without a version. It returns when the record is on the disk; concurrent calls share
// that wait. For an item that has begun already it does nothing. After an error the run
// must not go on.
func (f *File[T, V]) Begin(item T) error {
	return f.note(begin, item, *new(V))
}

// Done records the version at which the item was handled: the version that the run read
// before its work. It does not wait for the disk; if the record is lost, the item runs
// again. The zero version is an error, because it stands for an item that has begun.
func (f *File[T, V]) Done(item T, version V) error {
	if version == *new(V) {
		return fmt.Errorf("remember: done %s: the version is the zero one, want that of what was handled", brief(item))
	}
	return f.note(done, item, version)
}

// Forget records that the item and all its dependents are gone. It does not wait for the
// disk. For an unknown item it does nothing.
func (f *File[T, V]) Forget(item T) error {
	return f.note(forget, item, *new(V))
}

// Version returns the version at which the item was handled, and false if it was not
// handled, or has begun again since.
func (f *File[T, V]) Version(item T) (V, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	version := f.entries[item].version
	return version, version != *new(V)
}

// All returns a snapshot of all items, made when the loop begins, in no order. An item
// that has begun and is not done has the zero version. Before Open and after Close there
// are none, so call it only between the two.
func (f *File[T, V]) All() iter.Seq2[T, V] {
	return func(yield func(T, V) bool) {
		f.mu.Lock()
		entries := maps.Clone(f.entries)
		f.mu.Unlock()
		for item, e := range entries {
			if !yield(item, e.version) {
				return
			}
		}
	}
}

// Close ends the use of the file. When it returns nil, all records are on the disk.
// Closing twice is allowed. The file may be opened again.
func (f *File[T, V]) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.syncing {
		f.idle.Wait()
	}
	if f.file == nil {
		return nil
	}
	if f.err == nil {
		if f.err = cmp.Or(f.file.Sync(), f.disk.isAt(f.file, f.path)); f.err == nil {
			f.synced = f.written
			f.checkpoint()
		}
	}
	err := cmp.Or(f.err, f.disk.isAt(f.file, f.path), f.file.Close(), f.lock.Close())
	f.file, f.entries = nil, nil
	if err != nil {
		return fmt.Errorf("remember: close %s: %w", f.Path, err)
	}
	return nil
}

func (f *File[T, V]) note(verb string, item T, version V) error {
	r, err := newRecord(verb, item, version)
	if err == nil {
		f.mu.Lock()
		err = f.noteLocked(r, item, version)
		f.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("remember: %s %s: %s: %w", verb, brief(item), f.Path, err)
	}
	return nil
}

// noteLocked does what a call says. What is remembered already is not written.
func (f *File[T, V]) noteLocked(r record, item T, version V) error {
	if f.file == nil || f.err != nil {
		return cmp.Or(f.err, errors.New("not open"))
	}
	e, known := f.entries[item]
	if known == (r.verb == forget) || e.version != version {
		if err := f.write(r); err != nil {
			f.err = f.file.Truncate(f.size) // it may be there all the same
			return err
		}
		f.set(r.verb, item, version)
		e.written = f.written
	}
	if r.verb == begin {
		if err := f.flushLocked(e.written); err != nil {
			return err
		}
	}
	return f.compactLocked()
}

// write appends a record. If that fails, the next one is written in its place.
func (f *File[T, V]) write(r record) error {
	r.safe = f.size - (f.written - f.synced)
	line := r.append(nil)
	if _, err := f.file.WriteAt(line, f.size); err != nil {
		return err
	}
	f.size += int64(len(line))
	f.written += int64(len(line))
	f.records++
	f.checked = r.verb == synced
	return nil
}

// checkpoint notes that the disk has all that is in the file. That it cannot be
// written costs no more than what it is for.
func (f *File[T, V]) checkpoint() {
	if !f.checked {
		_ = f.write(record{verb: synced})
	}
}

// flushLocked returns when the disk has what was written by then. Of the calls that
// wait, one does it for all, and gives up the lock meanwhile.
func (f *File[T, V]) flushLocked(upTo int64) error {
	for !f.NoSync && f.synced < upTo {
		switch {
		case f.err != nil:
			return f.err
		case f.syncing:
			idle := f.idle
			idle.Wait()
			if f.idle != idle { // what it is now may be another file
				return errors.New("closed meanwhile, and opened again")
			}
			continue
		}
		file, disk, written := f.file, f.disk, f.written
		f.syncing = true
		f.mu.Unlock()
		err := cmp.Or(file.Sync(), disk.isAt(file, f.path))
		f.mu.Lock()
		f.syncing = false
		f.idle.Broadcast()
		if err == nil {
			f.synced = written
		} else { // nobody knows what the disk has: another try may succeed without it
			f.err = err
		}
	}
	return nil
}

// compactLocked writes the log anew if most of it is out of date. While a call waits
// for the disk that is left to that call. If it does not succeed and the old log goes
// on, this is no error: it is tried again when the log is twice as long.
func (f *File[T, V]) compactLocked() error {
	if f.syncing || f.file == nil || f.err != nil || f.records <= f.allowed {
		return nil
	}
	if f.err = f.disk.isAt(f.file, f.path); f.err != nil {
		return f.err
	}
	if err := f.rewrite(); err != nil {
		f.allowed = 2 * f.records
		if errors.Is(err, errMountPoint) { // It would grow for ever.
			f.err = cmp.Or(f.err, err)
		}
	}
	return f.err
}

// rewrite puts a log of all entries into the place of the old one, if there is one,
// and opens it. If it returns an error, and does not set err, the old one goes on.
func (f *File[T, V]) rewrite() error {
	next := f.path + ".new"
	size, err := f.writeAll(next)
	if err != nil {
		f.disk.remove(next) // it takes space, which may be what is short
		return err
	}
	if f.file != nil {
		f.file.Close() // as some systems do not rename to what is open
	}
	if err = f.disk.rename(next, f.path); err != nil {
		f.disk.remove(next)
		if f.file == nil {
			return err
		}
		size = f.size
	} else {
		f.records, f.checked = len(f.entries)+1, true
	}
	f.err = f.attach(size, nil)
	return cmp.Or(err, f.err)
}

// writeAll writes a log of all entries, and returns its size.
func (f *File[T, V]) writeAll(path string) (size int64, err error) {
	text := []byte(magic)
	for item, e := range f.entries {
		verb := done
		if e.version == *new(V) {
			verb = begin
		}
		r, err := newRecord(verb, item, e.version)
		if err != nil {
			return 0, err
		}
		text = r.append(text)
	}
	// The disk has all of it before it gets its name.
	text = record{verb: synced, safe: int64(len(text))}.append(text)
	file, err := f.disk.create(path, f.path)
	if err != nil {
		return 0, err
	}
	_, err = file.WriteAt(text, 0)
	return int64(len(text)), cmp.Or(err, file.Sync(), file.Close())
}

// brief returns what an error says of v, which may be long.
func brief(v any) string {
	s := fmt.Sprint(v)
	if short := fmt.Sprintf("%.100s", s); short != s {
		return short + "…"
	}
	return s
}
