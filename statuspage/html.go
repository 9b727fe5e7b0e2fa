// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"mime"
	"net/http"
	"path"
	"time"
)

//go:embed page.html
var pageHTML string

//go:embed assets
var assetFiles embed.FS

// assets are the files that the page needs, by name, and assetsVersion changes
// when one of them does.
var assets, assetsVersion = loadAssets()

func loadAssets() (map[string][]byte, string) {
	files := make(map[string][]byte)
	hash := fnv.New64a()
	for _, name := range []string{"style.css", "script.js", "icon.svg"} {
		data, err := assetFiles.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // it is in the program, or the program does not build
		}
		files[name] = data
		hash.Write(data)
	}
	return files, fmt.Sprintf("%x", hash.Sum64())
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	if r.FormValue("v") == assetsVersion {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(assets[name]))
}

var templates = template.Must(template.New("page").Parse(pageHTML))

// The regions of a page are what is sent when it changes, each by the name of
// its template, which is the id of its element too.
var (
	overviewRegions = []string{"title", "queues", "alerts", "tiles", "charts", "items", "groups"}
	itemRegions     = []string{"item", "runs"}
)

// A frame is what both pages have around their regions.
type frame struct {
	Title   string
	Lead    string // stands before the title; may be empty
	Version string
	Home    string // the URL of the overview
	JSON    string // the URL of the same for programs
	Live    bool   // it changes, and is kept up to date by a script
}

func (p *Page) frame() frame {
	return frame{Title: p.title(), Version: assetsVersion, Home: "./"}
}
