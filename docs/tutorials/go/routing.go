// Routing: a receiver names the severities that it wants.
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
	check(channel.ExchangeDeclare("logs-direct", "direct", false, false, false, false, nil))
}

func emit(severity, text string) {
	connection, channel := connect()
	defer connection.Close()
	declare(channel)
	message := amqp.Publishing{Body: []byte(text)}
	check(channel.PublishWithContext(
		context.Background(), "logs-direct", severity, false, false, message))
	fmt.Println("sent", severity, text)
}

func receive() {
	_, channel := connect()
	declare(channel)
	exclusive := true
	queue, err := channel.QueueDeclare("", false, false, exclusive, false, nil) // the broker makes the name
	check(err)
	for _, severity := range os.Args[2:] {
		check(channel.QueueBind(queue.Name, severity, "logs-direct", false, nil))
	}
	deliveries, err := channel.Consume(queue.Name, "", true, false, false, false, nil)
	check(err)
	fmt.Println("waiting")
	for delivery := range deliveries {
		fmt.Println("received", delivery.RoutingKey, string(delivery.Body))
	}
}

func main() {
	if os.Args[1] == "emit" {
		emit(os.Args[2], os.Args[3])
	} else {
		receive()
	}
}
