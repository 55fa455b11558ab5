package main

import (
	"bytes"
	"context"
	"fmt"

	api "github.com/deepgram/deepgram-go-sdk/v3/pkg/api/speak/v1/rest"
	interfaces "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/interfaces"
	speak "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/speak"
)

func say(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("speak ADDRESS KEY")
	}
	client := api.New(speak.NewREST(args[1], options(args[0], args[1])))
	var audio bytes.Buffer
	query := &interfaces.SpeakOptions{Model: "aura-2-thalia-en", Encoding: "linear16", SampleRate: 16000}
	if _, err := client.ToFile(context.Background(), "The quick brown fox jumps over the lazy dog.", query, &audio); err != nil {
		return err
	}
	fmt.Println(audio.Len())
	return nil
}
