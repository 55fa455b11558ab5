package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	types "github.com/deepgram/deepgram-go-sdk/v3/pkg/api/listen/v1/websocket/interfaces"
	interfaces "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/interfaces"
	listen "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/listen"
)

const (
	wait       = 2 * time.Minute
	wavHeader  = 44
	pieceBytes = 3200
)

// liveSeen hears what the client calls back.
type liveSeen struct {
	final     strings.Builder
	interim   bool
	finalized chan struct{}
	failed    chan string
}

func (s *liveSeen) Open(*types.OpenResponse) error                   { return nil }
func (s *liveSeen) Metadata(*types.MetadataResponse) error           { return nil }
func (s *liveSeen) SpeechStarted(*types.SpeechStartedResponse) error { return nil }
func (s *liveSeen) UtteranceEnd(*types.UtteranceEndResponse) error   { return nil }
func (s *liveSeen) Close(*types.CloseResponse) error                 { return nil }
func (s *liveSeen) UnhandledEvent(message []byte) error              { s.failed <- string(message); return nil }
func (s *liveSeen) Error(e *types.ErrorResponse) error               { s.failed <- e.Description; return nil }

func (s *liveSeen) Message(message *types.MessageResponse) error {
	text := message.Channel.Alternatives[0].Transcript
	if message.IsFinal && text != "" {
		if s.final.Len() > 0 {
			s.final.WriteString(" ")
		}
		s.final.WriteString(text)
	}
	s.interim = s.interim || !message.IsFinal && text != ""
	if message.FromFinalize {
		close(s.finalized)
	}
	return nil
}

func live(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("live ADDRESS KEY FILE.wav")
	}
	audio, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	seen := &liveSeen{finalized: make(chan struct{}), failed: make(chan string, 8)}
	query := &interfaces.LiveTranscriptionOptions{
		Model: "nova-3", Language: "en", Punctuate: true, InterimResults: true, VadEvents: true, UtteranceEndMs: "1000",
		Encoding: "linear16", SampleRate: 16000, Channels: 1,
	}
	here := options(strings.Replace(args[0], "http", "ws", 1), args[1])
	client, err := listen.NewWSUsingCallback(context.Background(), args[1], here, query, seen)
	if err != nil {
		return err
	}
	if !client.Connect() {
		return fmt.Errorf("no connection")
	}
	for rest := audio[wavHeader:]; len(rest) > 0; rest = rest[min(pieceBytes, len(rest)):] {
		if _, err := client.Write(rest[:min(pieceBytes, len(rest))]); err != nil {
			return err
		}
		// As from a microphone, and faster.
		time.Sleep(20 * time.Millisecond)
	}
	if err := client.Finalize(); err != nil {
		return err
	}
	select {
	case <-seen.finalized:
	case failure := <-seen.failed:
		return fmt.Errorf("%s", failure)
	case <-time.After(wait):
		return fmt.Errorf("nothing is finalized")
	}
	client.Stop()
	if !seen.interim {
		return fmt.Errorf("no interim words")
	}
	fmt.Println(seen.final.String())
	return nil
}
