// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// terminal opens a new terminal of that size: its two ends. Where there are none,
// as in some containers, it returns nil, except in CI, where that is a failure.
func terminal(t *testing.T, width, height uint16) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		t.Log("there are no terminals here, so what the program does on one was not seen")
		return nil, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	control := func(request uintptr, arg unsafe.Pointer) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, user.Fd(), request, uintptr(arg)); errno != 0 {
			t.Fatal(errno)
		}
	}
	unlock, number := int32(0), uint32(0)
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	size := [4]uint16{height, width}
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	// Or Ctrl-C would be shown in the midst of a frame, and throw away the rest.
	var mode syscall.Termios
	control(syscall.TCGETS, unsafe.Pointer(&mode))
	mode.Lflag = mode.Lflag&^syscall.ECHO | syscall.NOFLSH
	control(syscall.TCSETS, unsafe.Pointer(&mode))
	program, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return user, program
}

// On a terminal there is a table, log lines do not spoil it, Ctrl-C ends the
// program, and the terminal is then as it was.
func TestProcessOnTerminal(t *testing.T) {
	user, program := terminal(t, 100, 30)
	if user == nil {
		return
	}
	// Without faults, as another look at an asset could fail in the end.
	cmd := command("example", "-watch", "-log", "debug", "-build", "50ms", "-faults", "0")
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir(), "NO_COLOR=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that Ctrl-C reaches it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	program.Close()
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()

	var all strings.Builder
	read := func(until string) {
		t.Helper()
		for !strings.Contains(all.String(), until) {
			chunk := make([]byte, 64<<10)
			n, err := user.Read(chunk) // an error once the program has ended
			all.Write(chunk[:n])
			if err != nil && !strings.Contains(all.String(), until) {
				t.Fatalf("the terminal ends with %v before %q; it showed\n%q", err, until, all.String())
			}
		}
	}
	read("in sync 14/14")
	if _, err := io.WriteString(user, "\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	read("14 of 14 assets in sync")
	read("peak memory")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}

	got := all.String()
	table, after, left := strings.Cut(got, leaveScreen)
	if !left || !strings.HasPrefix(table, "    0.0s  example: ") || !strings.Contains(table, " simulated here\r\n"+enterScreen+home) {
		t.Fatalf("the terminal was not put back; it showed\n%q", got)
	}
	if frames := strings.Split(table, home); len(frames) < 3 {
		t.Errorf("there were %d frames", len(frames)-1)
	} else {
		for _, frame := range frames[1:] {
			if n := strings.Count(frame, "\n"); n >= 30 || !strings.Contains(frame, "DETAIL") {
				t.Errorf("a frame has %d lines, or no head:\n%q", n, frame)
			}
		}
	}
	if !strings.Contains(table, "level=DEBUG") || !strings.Contains(after, green+"key/finance              in sync") {
		t.Errorf("in the table there are no lines of the log, or after it the last table is missing:\n%q", got)
	}
}
