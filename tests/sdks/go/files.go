package main

import (
	"context"
	"encoding/json"
	"os"

	api "github.com/deepgram/deepgram-go-sdk/v3/pkg/api/listen/v1/rest"
	types "github.com/deepgram/deepgram-go-sdk/v3/pkg/api/listen/v1/rest/interfaces"
	interfaces "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/interfaces"
	listen "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/listen"
)

type heard struct {
	Transcript string   `json:"transcript"`
	Words      [][]any  `json:"words"`
	Utterances []string `json:"utterances"`
	RequestID  string   `json:"request_id"`
}

func read(response *types.PreRecordedResponse) heard {
	alternative := response.Results.Channels[0].Alternatives[0]
	read := heard{Transcript: alternative.Transcript, RequestID: response.Metadata.RequestID, Utterances: []string{}}
	for _, word := range alternative.Words {
		read.Words = append(read.Words, []any{word.Word, word.Start, word.End})
	}
	for _, utterance := range response.Results.Utterances {
		read.Utterances = append(read.Utterances, utterance.Transcript)
	}
	return read
}

func files([]string) error {
	client := api.New(listen.NewREST(os.Getenv("KEY"), options(os.Getenv("SERVER"), os.Getenv("KEY"))))
	ctx, file := context.Background(), os.Getenv("AUDIO")
	bytes, err := client.FromFile(ctx, file, &interfaces.PreRecordedTranscriptionOptions{
		Model: "nova-3", SmartFormat: true})
	if err != nil {
		return err
	}
	url, err := client.FromURL(ctx, os.Getenv("URL"), &interfaces.PreRecordedTranscriptionOptions{Model: "nova-3"})
	if err != nil {
		return err
	}
	utterances, err := client.FromFile(ctx, file, &interfaces.PreRecordedTranscriptionOptions{Utterances: true})
	if err != nil {
		return err
	}
	later, err := client.FromFile(ctx, file, &interfaces.PreRecordedTranscriptionOptions{
		Callback: os.Getenv("CALLBACK")})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"bytes": read(bytes), "url": read(url), "utterances": read(utterances), "callback": later.RequestID,
	})
}
