package commands

var hashSpecs []Spec
