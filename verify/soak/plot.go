// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"image/color"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plotTo draws the heap over time: each sample, and the median of a minute.
func plotTo(file string, samples []sample) error {
	ink := color.Gray{0x20}
	p := plot.New()
	p.BackgroundColor = color.White
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.Legend.TextStyle,
		&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label,
	} {
		style.Font.Variant = "Sans"
		style.Color = ink
	}
	p.Title.Text = "Live heap, with all that can go wrong going wrong"
	p.Title.Padding = 8
	p.X.Label.Text = "minutes"
	p.Y.Label.Text = "MiB after a garbage collection"
	p.Y.Min = 0
	p.Legend.Top = true

	var points, medians plotter.XYs
	var minute []sample
	for i, s := range samples {
		points = append(points, plotter.XY{X: s.at.Minutes(), Y: float64(s.heap) / (1 << 20)})
		minute = append(minute, s)
		if i+1 == len(samples) || int(samples[i+1].at.Minutes()) > int(s.at.Minutes()) {
			middle := minute[len(minute)/2].at.Minutes()
			medians = append(medians, plotter.XY{X: middle, Y: float64(median(minute)) / (1 << 20)})
			minute = nil
		}
	}
	p.Y.Max = 0
	for _, xy := range points {
		p.Y.Max = max(p.Y.Max, 1.25*xy.Y)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = color.Gray{0xe0}
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: color.RGBA{0x90, 0xb8, 0xdc, 0xff}, Radius: 1, Shape: draw.CircleGlyph{}}
	line, err := plotter.NewLine(medians)
	if err != nil {
		return err
	}
	line.Color, line.Width = color.RGBA{0x00, 0x54, 0xa6, 0xff}, 1.5
	p.Add(grid, dots, line)
	p.Legend.Add("one sample", dots)
	p.Legend.Add("median of a minute", line)

	canvas := vgsvg.New(8*vg.Inch, 3.2*vg.Inch)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	svg := strings.ReplaceAll(b.String(), "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;")
	return os.WriteFile(file, []byte(svg), 0o644)
}
