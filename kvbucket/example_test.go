package kvbucket_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/edgehost/edgehost/kvbucket"
)

// A program with its own store: the server, a connection to it and a bucket.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "kvbucket")
	if err != nil {
		log.Fatal(err)
	}
	server, err := kvbucket.StartServer(ctx, kvbucket.ServerConfig{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := server.Dial(ctx, kvbucket.ConnConfig{Name: "example"})
	if err != nil {
		log.Fatal(err)
	}
	bucket, err := conn.Bucket(ctx, kvbucket.BucketConfig{Name: "coordination", Replicas: 1})
	if err != nil {
		log.Fatal(err)
	}

	revision, err := bucket.Update(ctx, "o.shop.payments", []byte(`{"state":"closed"}`), 0)
	if err != nil {
		log.Fatal(err)
	}
	if _, err = bucket.Update(ctx, "o.shop.payments", []byte(`{"state":"open"}`), revision); err != nil {
		log.Fatal(err)
	}
	_, err = bucket.Update(ctx, "o.shop.payments", []byte(`{"state":"half-open"}`), revision)
	fmt.Println("late writer refused:", errors.Is(err, kvbucket.ErrConflict))
	entry, err := bucket.Get(ctx, "o.shop.payments")
	fmt.Println(string(entry.Value), err)
	// The connection first, lest it tries to reconnect.
	fmt.Println(errors.Join(conn.Close(ctx), server.Close(ctx), os.RemoveAll(dir)))
	// Output:
	// late writer refused: true
	// {"state":"open"} <nil>
	// <nil>
}

func ExampleModify() {
	ctx := context.Background()
	bucket := kvbucket.NewMemory()
	increment := func(old kvbucket.Entry) ([]byte, error) { return append(old.Value, '|'), nil }
	for range 3 {
		if _, err := kvbucket.Modify(ctx, bucket, "tally", increment); err != nil {
			log.Fatal(err)
		}
	}
	entry, err := bucket.Get(ctx, "tally")
	fmt.Println(string(entry.Value), err)
	// Output: ||| <nil>
}

func ExampleEscape() {
	key := "o." + kvbucket.Escape("shop") + "." + kvbucket.Escape("api.example.com/v1")
	fmt.Println(key)
	// Output: o.shop.api=2Eexample=2Ecom/v1
}

func ExampleMemory_Watch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	bucket := kvbucket.NewMemory()
	for _, key := range []string{"o.shop.payments", "l.shop.orders", "o.shop.mail"} {
		if _, err := bucket.Update(ctx, key, []byte("record"), 0); err != nil {
			log.Fatal(err)
		}
	}
	for entry := range bucket.Watch(ctx, "o.>") {
		fmt.Println(entry.Key)
		if entry.Key == "o.shop.mail" {
			break
		}
	}
	// Output:
	// o.shop.payments
	// o.shop.mail
}
