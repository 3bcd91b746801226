package commands

var stringSpecs []Spec
