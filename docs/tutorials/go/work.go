// Work queue: tasks are shared among workers and survive a crash of worker or broker.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

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
	durable := true
	_, err := channel.QueueDeclare("tasks", durable, false, false, false, nil)
	check(err)
}

func add(task string) {
	connection, channel := connect()
	defer connection.Close()
	declare(channel)
	check(channel.Confirm(false))
	message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(task)}
	confirm, err := channel.PublishWithDeferredConfirmWithContext(
		context.Background(), "", "tasks", false, false, message)
	check(err)
	if !confirm.Wait() { // until the task is on disk
		panic("the broker refused the task")
	}
	fmt.Println("added", task)
}

func work() {
	_, channel := connect()
	declare(channel)
	check(channel.Qos(1, 0, false)) // the next task after the acknowledgement of this one
	deliveries, err := channel.Consume("tasks", "", false, false, false, false, nil)
	check(err)
	fmt.Println("waiting")
	for delivery := range deliveries {
		task := string(delivery.Body)
		time.Sleep(time.Duration(strings.Count(task, ".")) * time.Second) // a second for each dot
		fmt.Println("done", task)
		check(delivery.Ack(false))
	}
}

func main() {
	if os.Args[1] == "add" {
		add(os.Args[2])
	} else {
		work()
	}
}
