// Searches: which cells may hold what is near, and what of them does.

package geo

import (
	"math"
	"slices"
)

// Area is a circle or a box around a place. Lengths are in units of Unit meters.
type Area struct {
	Center        Place
	Unit          float64
	Radius        float64
	Box           bool // Width and Height bound it, instead of Radius
	Width, Height float64
}

// Distance returns how far a place is from the center, in meters, if it is within the area. A box
// is as wide at every latitude as at its center.
func (a *Area) Distance(p Place) (meters float64, within bool) {
	if a.Box {
		along := Distance(p, Place{p.Lon, a.Center.Lat})
		if along > float64(float64(a.Height*a.Unit)/2) {
			return 0, false
		}
		across := Distance(p, Place{a.Center.Lon, p.Lat})
		return Distance(a.Center, p), across <= float64(float64(a.Width*a.Unit)/2)
	}
	meters = Distance(a.Center, p)
	return meters, meters <= float64(a.Radius*a.Unit)
}

// Range is the scores from Min to below Max.
type Range struct{ Min, Max float64 }

// scores returns the scores of the places in a cell.
func (c cell) scores() Range {
	rest := 2 * (scoreLevel - c.level)
	first := c.bits()
	return Range{float64(first << rest), float64((first + 1) << rest)}
}

// compass has the steps from a cell to its neighbors, in the order in which Redis searches them.
var compass = [...]struct{ east, north int }{
	{0, 0}, {0, 1}, {0, -1}, {1, 0}, {-1, 0}, {1, 1}, {-1, 1}, {1, -1}, {-1, -1},
}

// Ranges returns the scores of the cells that cover the area: that of the center and those around
// it. As on Redis, an area of many thousand kilometers, or near a pole, may exceed them.
func (a *Area) Ranges() []Range {
	level := a.level()
	low, high := a.bounds(level)
	center := a.Center.cell(level, maxLat)
	if level > 1 && !center.neighborsCover(low, high) {
		level--
		center = a.Center.cell(level, maxLat)
	}
	from, to := center.area()
	var ranges []Range
	for _, step := range compass {
		c := center.neighbor(step.east, step.north)
		// no part of the area lies on that side of the center's cell
		apart := (step.north < 0 && from.Lat < low.Lat) || (step.north > 0 && to.Lat > high.Lat) ||
			(step.east < 0 && from.Lon < low.Lon) || (step.east > 0 && to.Lon > high.Lon)
		scores := c.scores()
		// on level 1 the neighbors on both sides are the same
		if (level > 1 && apart) || slices.Contains(ranges, scores) {
			continue
		}
		ranges = append(ranges, scores)
	}
	return ranges
}

// level returns the level whose cells are about as large as the area. They get narrower towards the
// poles.
func (a *Area) level() uint {
	const half = 20037726.37 // half of the equator, in meters
	meters := a.Radius
	if a.Box {
		w, h := float64(a.Width/2), float64(a.Height/2)
		meters = math.Sqrt(float64(w*w) + float64(h*h))
	}
	meters = float64(meters * a.Unit)
	if meters == 0 {
		return scoreLevel
	}
	level := -1
	for ; meters < half; meters += meters {
		level++
	}
	if lat := math.Abs(a.Center.Lat); lat > 80 {
		level -= 2
	} else if lat > 66 {
		level--
	}
	return uint(min(max(level, 1), scoreLevel))
}

// bounds returns the corners of a box around the area, for cells of a level. There are none at
// level 1, where the cells cover everything.
func (a *Area) bounds(level uint) (low, high Place) {
	if level == 1 {
		return low, high
	}
	across, along := a.Radius, a.Radius
	if a.Box {
		across, along = float64(a.Width/2), float64(a.Height/2)
	}
	north := float64(a.Unit*along) / radius / degree
	edge := a.Center.Lat + north // the edge nearer to a pole, where meridians are closer
	if a.Center.Lat < 0 {
		edge = a.Center.Lat - north
	}
	east := float64(a.Unit*across) / radius / cosine(float64(edge*degree)) / degree
	return Place{a.Center.Lon - east, a.Center.Lat - north},
		Place{a.Center.Lon + east, a.Center.Lat + north}
}

// neighborsCover reports whether a cell and those around it reach from low to high.
func (c cell) neighborsCover(low, high Place) bool {
	_, north := c.neighbor(0, 1).area()
	south, _ := c.neighbor(0, -1).area()
	_, east := c.neighbor(1, 0).area()
	west, _ := c.neighbor(-1, 0).area()
	return north.Lat >= high.Lat && south.Lat <= low.Lat && east.Lon >= high.Lon &&
		west.Lon <= low.Lon
}

// neighbor returns the cell so many steps east and north, around the world in both directions.
func (c cell) neighbor(east, north int) cell {
	most := uint32(1)<<c.level - 1
	if east != 0 {
		c.column = (c.column + uint32(east)) & most
	}
	if north != 0 {
		c.row = (c.row + uint32(north)) & most
	}
	return c
}
