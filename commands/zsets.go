package commands

var zsetSpecs []Spec
