// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// This file draws the charts: on white, so that they read the same in a light
// and in a dark page, in colours that the colour-blind can tell apart, each
// implementation with a shape of its own as well.

var looks = map[string]struct {
	color color.Color
	shape draw.GlyphDrawer
	dash  []vg.Length
}{
	nameOurs:    {color.RGBA{0x00, 0x54, 0xa6, 0xff}, draw.CircleGlyph{}, nil},
	nameClient:  {color.RGBA{0xd5, 0x5e, 0x00, 0xff}, draw.SquareGlyph{}, nil},
	nameCtrl:    {color.RGBA{0x00, 0x8a, 0x60, 0xff}, draw.PyramidGlyph{}, nil},
	nameMutex:   {color.RGBA{0x80, 0x80, 0x80, 0xff}, draw.BoxGlyph{}, []vg.Length{4, 3}},
	nameChannel: {color.RGBA{0xa0, 0xa0, 0xa0, 0xff}, draw.RingGlyph{}, []vg.Length{2, 3}},
}

var (
	ink      = color.Gray{0x20}
	gridLine = draw.LineStyle{Color: color.Gray{0xe0}, Width: 0.5}
)

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.White
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.Legend.TextStyle,
		&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label,
	} {
		style.Font.Variant = "Sans"
		style.Color = ink
	}
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 13
	p.Title.Padding = 8
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color = ink
		axis.Label.TextStyle.Font.Size = 11
		axis.Tick.Label.Font.Size = 10
		axis.Tick.Color = ink
	}
	p.Legend.Top = true
	p.Legend.TextStyle.Font.Size = 10
	p.Legend.ThumbnailWidth = 24
	p.Legend.Padding = 2
	return p
}

// save writes a chart. Its fonts are named with their usual stand-ins, as they
// are not part of the file.
func save(p *plot.Plot, width, height vg.Length, file string) error {
	canvas := vgsvg.New(width, height)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	svg := strings.ReplaceAll(b.String(), "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;")
	return os.WriteFile(file, []byte(svg), 0o644)
}

// curve draws a metric over the places of a workload, both axes logarithmic:
// what grows as fast as the work is a straight line that rises one for one.
func (r *results) curve(file, w, metric, title, xLabel, yLabel string, scale float64) error {
	p := newPlot(title)
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	var places plot.ConstantTicks
	for _, x := range r.xs(w, nameOurs) {
		places = append(places, plot.Tick{Value: float64(x), Label: count(x)})
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = places, plot.TickerFunc(steps)
	grid := plotter.NewGrid()
	grid.Horizontal, grid.Vertical = gridLine, gridLine
	p.Add(grid)
	low, high := math.Inf(1), math.Inf(-1)
	for _, im := range r.implsOf(w) {
		var points plotter.XYs
		for _, x := range r.xs(w, im) {
			if v := r.median(place{w, im, x}, metric) / scale; v > 0 {
				points = append(points, plotter.XY{X: float64(x), Y: v})
				low, high = min(low, v), max(high, v)
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		look := looks[im]
		line.Color, line.Width, line.Dashes = look.color, 1.5, look.dash
		dots.Color, dots.Shape, dots.Radius = look.color, look.shape, 3
		p.Add(line, dots)
		p.Legend.Add(im, line, dots)
	}
	if math.IsInf(low, 0) {
		return fmt.Errorf("%s: nothing to draw: want the output of a full run", file)
	}
	// Room for the legend above the highest curve.
	p.X.Max *= 1.15 // or half of its last label is cut off
	p.Y.Min, p.Y.Max = low/1.5, high*math.Pow(high/low, 0.45)*1.5
	p.Legend.Left = true
	return save(p, 17*vg.Centimeter, 10.5*vg.Centimeter, file)
}

// steps marks 1, 2 and 5 of each power of ten, written as people do, or only
// the powers where there is much to mark.
func steps(low, high float64) []plot.Tick {
	var list []plot.Tick
	many := high/low > 200
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v < low*0.999 || v > high*1.001 {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || !many {
				t.Label = short(v)
			}
			list = append(list, t)
		}
	}
	return list
}

func short(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%gG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%g", math.Round(v*1e6)/1e6)
}
