// The wire format's Go SDK against another address, with nothing changed but that address and the key.
//
//	sdk-client files             environment as for client.py; prints what came back as JSON
//	sdk-client live|turns|speak|manage ADDRESS KEY [FILE.wav]
//
// `live` prints the transcript, `turns` a line for each turn, `speak` the number of bytes of audio, `manage` the
// project's keys before and after one is created and deleted.
package main

import (
	"fmt"
	"os"

	interfaces "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/interfaces"
)

func main() {
	programs := map[string]func(args []string) error{
		"files": files, "live": live, "turns": turns, "speak": say, "manage": administer,
	}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fail(fmt.Errorf("which of files, live, turns, speak, manage?"))
	}
	if err := programs[os.Args[1]](os.Args[2:]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func options(address, key string) *interfaces.ClientOptions {
	return &interfaces.ClientOptions{Host: address, APIKey: key}
}
