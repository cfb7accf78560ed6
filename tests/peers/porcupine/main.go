// Checks a history of requests to a controller with porcupine: is there an order of all calls, each between its begin
// and its end, in which the state of a broker group explains every answer?
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"time"

	"github.com/anishathalye/porcupine"
)

// group is the state of a broker group. Master 0 is none.
type group struct {
	Master   int   `json:"master"`
	Epoch    int   `json:"epoch"`
	SetEpoch int   `json:"setEpoch"`
	Set      []int `json:"set"`
}

type answer struct {
	Code int `json:"code"`
	group
}

type call struct {
	Client    string  `json:"client"`
	Operation string  `json:"operation"`
	Invoked   int64   `json:"invoked"`
	Returned  *int64  `json:"returned"`
	Wanted    group   `json:"wanted"`
	Found     *answer `json:"found"`
}

const success = 0

// follows tells whether a group may be in the state `seen` after `known`, by elections that the controller made itself.
// Within an epoch nothing but requests changes it.
func follows(known, seen group) bool {
	if seen.Epoch == known.Epoch {
		return reflect.DeepEqual(known, seen)
	}
	if seen.Epoch < known.Epoch {
		return false
	}
	if seen.Master == 0 {
		return seen.SetEpoch >= known.SetEpoch
	}
	return seen.SetEpoch > known.SetEpoch && reflect.DeepEqual(seen.Set, []int{seen.Master})
}

// altered is the state after a request for another in-sync set, and whether the request fits the state before.
func altered(known, wanted group) (group, bool) {
	after := group{wanted.Master, wanted.Epoch, wanted.SetEpoch + 1, wanted.Set}
	if wanted.Epoch > known.Epoch {
		return after, wanted.SetEpoch > known.SetEpoch
	}
	return after, wanted.Epoch == known.Epoch && wanted.Master == known.Master && wanted.SetEpoch == known.SetEpoch
}

func step(state, input, output interface{}) (bool, interface{}) {
	known, made := state.(group), input.(call)
	found, _ := output.(*answer)
	if made.Operation == "alter" {
		after, fits := altered(known, made.Wanted)
		switch {
		case found == nil: // it was applied here, or never
			if fits {
				return true, after
			}
			return true, known
		case found.Code != success:
			return true, known
		}
		same := found.SetEpoch == after.SetEpoch && reflect.DeepEqual(found.Set, after.Set)
		return fits && same, after
	}
	if found == nil || found.Epoch == 0 {
		return true, known
	}
	return follows(known, found.group), found.group
}

var model = porcupine.Model{
	Init:  func() interface{} { return group{} },
	Step:  step,
	Equal: func(one, other interface{}) bool { return reflect.DeepEqual(one, other) },
}

func history(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var operations []porcupine.Operation
	clients := map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var made call
		if err := json.Unmarshal(lines.Bytes(), &made); err != nil {
			return nil, err
		}
		if _, known := clients[made.Client]; !known {
			clients[made.Client] = len(clients)
		}
		returned := int64(math.MaxInt64)
		if made.Returned != nil {
			returned = *made.Returned
		}
		operations = append(operations, porcupine.Operation{
			ClientId: clients[made.Client], Input: made, Call: made.Invoked, Output: made.Found, Return: returned,
		})
	}
	return operations, lines.Err()
}

func main() {
	operations, err := history(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	switch porcupine.CheckOperationsTimeout(model, operations, time.Minute) {
	case porcupine.Ok:
		fmt.Printf("linearizable: %d calls\n", len(operations))
	case porcupine.Illegal:
		fmt.Printf("not linearizable: %d calls\n", len(operations))
		os.Exit(1)
	default:
		fmt.Println("undecided within a minute")
		os.Exit(3)
	}
}
