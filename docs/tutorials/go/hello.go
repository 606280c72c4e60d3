// Hello world: one program sends a message, another receives it.
package main

import (
	"context"
	"fmt"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func connect() (*amqp.Connection, *amqp.Channel) {
	url := os.Getenv("AMQP_URL")
	if url == "" {
		url = "amqp://guest:guest@127.0.0.1:5672/%2f"
	}
	connection, err := amqp.Dial(url)
	check(err)
	channel, err := connection.Channel()
	check(err)
	return connection, channel
}

func declare(channel *amqp.Channel) {
	_, err := channel.QueueDeclare("hello", false, false, false, false, nil)
	check(err)
}

func send(text string) {
	connection, channel := connect()
	defer connection.Close()
	declare(channel)
	message := amqp.Publishing{Body: []byte(text)}
	check(channel.PublishWithContext(context.Background(), "", "hello", false, false, message))
	fmt.Println("sent", text)
}

func receive() {
	_, channel := connect()
	declare(channel)
	autoAck := true
	deliveries, err := channel.Consume("hello", "", autoAck, false, false, false, nil)
	check(err)
	fmt.Println("waiting")
	for delivery := range deliveries {
		fmt.Println("received", string(delivery.Body))
	}
}

func main() {
	if os.Args[1] == "send" {
		send(os.Args[2])
	} else {
		receive()
	}
}
