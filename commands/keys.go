package commands

var keySpecs []Spec
