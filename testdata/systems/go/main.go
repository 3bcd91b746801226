// Command go is a producer or a worker of one queue: go run . asynq|gocraft|rmq produce|work NAME
// JOBS. It prints `put N` for a job that the library took and `ran N` for one that a worker began.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// library opens one queue of a node.
type library struct {
	// add puts a job into the queue, or fails.
	add func(addr, queue string) (func(id string) error, error)
	// work begins jobs until it fails.
	work func(addr, queue string) error
}

var libraries = map[string]library{
	"asynq":   {asynqAdd, asynqWork},
	"gocraft": {gocraftAdd, gocraftWork},
	"rmq":     {rmqAdd, rmqWork},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "queue:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 || libraries[args[0]].add == nil {
		return errors.New("usage: queue asynq|gocraft|rmq produce|work NAME JOBS")
	}
	lib, addr, queue := libraries[args[0]], os.Getenv("COORDD_ADDR"), args[2]
	jobs, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	if args[1] == "work" {
		err := lib.work(addr, queue)
		fmt.Fprintf(os.Stderr, "%s: %v\n", args[0], err)
		time.Sleep(time.Second)
		return syscall.Exec(os.Args[0], os.Args, os.Environ()) // as a supervisor would
	}
	add, err := lib.add(addr, queue)
	if err != nil {
		return err
	}
	for n := 0; n < jobs; {
		id := strconv.Itoa(n)
		if err := add(id); err != nil {
			fmt.Fprintf(os.Stderr, "%s add: %v\n", args[0], err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		fmt.Println("put", id)
		n++
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// job is what every worker does.
func job(id string) {
	fmt.Println("ran", id)
	time.Sleep(20 * time.Millisecond)
}
