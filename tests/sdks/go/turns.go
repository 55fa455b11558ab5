package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	types "github.com/deepgram/deepgram-go-sdk/v3/pkg/api/listen/v2/websocket/interfaces"
	interfaces "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/interfaces"
	listen "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/listen/v2"
)

// turnsSeen hears what the client calls back.
type turnsSeen struct {
	connected, configured, ended chan string
	failed                       chan string
}

func (s *turnsSeen) Open(*types.OpenResponse) error   { return nil }
func (s *turnsSeen) Close(*types.CloseResponse) error { return nil }
func (s *turnsSeen) Connected(message *types.ConnectedResponse) error {
	s.connected <- message.RequestID
	return nil
}
func (s *turnsSeen) ConfigureSuccess(*types.ConfigureSuccessResponse) error {
	s.configured <- "yes"
	return nil
}
func (s *turnsSeen) ConfigureFailure(*types.ConfigureFailureResponse) error {
	s.failed <- "the configuration is refused"
	return nil
}
func (s *turnsSeen) FatalError(e *types.FatalErrorResponse) error { s.failed <- e.Description; return nil }
func (s *turnsSeen) Error(e *types.ErrorResponse) error           { s.failed <- e.Description; return nil }
func (s *turnsSeen) UnhandledEvent(message []byte) error          { s.failed <- string(message); return nil }
func (s *turnsSeen) TurnInfo(message *types.TurnInfoResponse) error {
	if message.EventType == types.TurnEventEndOfTurn {
		s.ended <- fmt.Sprintf("%d %s", message.TurnIndex, message.Transcript)
	}
	return nil
}

func (s *turnsSeen) next(from chan string) (string, error) {
	select {
	case text := <-from:
		return text, nil
	case failure := <-s.failed:
		return "", fmt.Errorf("%s", failure)
	case <-time.After(wait):
		return "", fmt.Errorf("no message in time")
	}
}

func turns(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("turns ADDRESS KEY FILE.wav")
	}
	audio, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	seen := &turnsSeen{
		connected: make(chan string, 8), configured: make(chan string, 8), ended: make(chan string, 64),
		failed: make(chan string, 8),
	}
	here := &interfaces.ClientOptionsV2{Host: strings.Replace(args[0], "http", "ws", 1), APIKey: args[1]}
	query := &interfaces.FluxTranscriptionOptions{
		Model: "flux-general-en", Encoding: "linear16", SampleRate: 16000, EagerEotThreshold: 0.4,
	}
	client, err := listen.NewWSUsingCallback(context.Background(), args[1], here, query, seen)
	if err != nil {
		return err
	}
	if !client.Connect() {
		return fmt.Errorf("no connection")
	}
	if _, err := seen.next(seen.connected); err != nil {
		return err
	}
	thresholds := &interfaces.FluxThresholds{EotThreshold: 0.6, EotTimeoutMs: 3000}
	if err := client.Configure(&interfaces.FluxConfigureOptions{Thresholds: thresholds}); err != nil {
		return err
	}
	if _, err := seen.next(seen.configured); err != nil {
		return err
	}
	// Silence after it, so that the turn ends by itself.
	said := append(audio[wavHeader:], make([]byte, 5*32000)...)
	for rest := said; len(rest) > 0; rest = rest[min(pieceBytes, len(rest)):] {
		if _, err := client.Write(rest[:min(pieceBytes, len(rest))]); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	text, err := seen.next(seen.ended)
	if err != nil {
		return err
	}
	client.Stop()
	fmt.Println(text)
	return nil
}
