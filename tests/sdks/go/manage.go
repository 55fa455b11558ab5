package main

import (
	"context"
	"fmt"

	authAPI "github.com/deepgram/deepgram-go-sdk/v3/pkg/api/auth/v1"
	manageAPI "github.com/deepgram/deepgram-go-sdk/v3/pkg/api/manage/v1"
	types "github.com/deepgram/deepgram-go-sdk/v3/pkg/api/manage/v1/interfaces"
	auth "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/auth"
	manage "github.com/deepgram/deepgram-go-sdk/v3/pkg/client/manage"
)

func administer(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("manage ADDRESS KEY")
	}
	ctx := context.Background()
	granted, err := authAPI.New(auth.New(args[1], options(args[0], args[1]))).GrantToken(ctx, nil)
	if err != nil {
		return err
	}
	if granted.AccessToken == "" || granted.ExpiresIn <= 0 {
		return fmt.Errorf("no token: %+v", granted)
	}
	client := manageAPI.New(manage.New(args[1], options(args[0], args[1])))
	projects, err := client.ListProjects(ctx)
	if err != nil {
		return err
	}
	project := projects.Projects[0].ProjectID
	before, err := client.ListKeys(ctx, project)
	if err != nil {
		return err
	}
	made, err := client.CreateKey(ctx, project, &types.KeyCreateRequest{
		Comment: "from Go", Scopes: []string{"usage:write"}, TimeToLive: 60})
	if err != nil {
		return err
	}
	between, err := client.ListKeys(ctx, project)
	if err != nil {
		return err
	}
	if _, err := client.DeleteKey(ctx, project, made.APIKeyID); err != nil {
		return err
	}
	after, err := client.ListKeys(ctx, project)
	if err != nil {
		return err
	}
	fmt.Println(len(before.APIKeys), len(between.APIKeys), len(after.APIKeys))
	return nil
}
