// Package fair shares a node's processors among connections: it predicts what a batch costs, and
// chooses who is served when there is much to do.
//
// Light batches run first come, first served, and many share one entry. Heavy batches, and unknown
// ones of a flow that has had more than its share, are served one quantum at a time by start-time
// fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): each flow pays for the work that its batches
// turned out to be, and the smallest start tag goes next. So a light batch waits for at most one
// heavy quantum. See docs/adr/0015.
package fair
