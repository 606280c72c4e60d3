// Remote procedure call: a request is a message that says where the reply goes.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

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

const replies = "amq.rabbitmq.reply-to" // no queue: the broker passes replies to this channel

func fibonacci(n int) int {
	a, b := 0, 1
	for i := 0; i < n; i++ {
		a, b = b, a+b
	}
	return a
}

func publish(channel *amqp.Channel, key string, message amqp.Publishing) {
	check(channel.PublishWithContext(context.Background(), "", key, false, false, message))
}

func serve() {
	_, channel := connect()
	_, err := channel.QueueDeclare("rpc", false, false, false, false, nil)
	check(err)
	check(channel.Qos(1, 0, false))
	requests, err := channel.Consume("rpc", "", false, false, false, false, nil)
	check(err)
	fmt.Println("waiting")
	for request := range requests {
		fmt.Println("asked for", string(request.Body))
		n, err := strconv.Atoi(string(request.Body))
		check(err)
		publish(channel, request.ReplyTo, amqp.Publishing{
			CorrelationId: request.CorrelationId,
			Body:          []byte(strconv.Itoa(fibonacci(n))),
		})
		check(request.Ack(false))
	}
}

func call(n string) {
	connection, channel := connect()
	defer connection.Close()
	answers, err := channel.Consume(replies, "", true, false, false, false, nil) // before the request
	check(err)
	publish(channel, "rpc", amqp.Publishing{ReplyTo: replies, CorrelationId: "1", Body: []byte(n)})
	for answer := range answers {
		if answer.CorrelationId == "1" {
			fmt.Printf("fibonacci(%s) = %s\n", n, answer.Body)
			return
		}
	}
}

func main() {
	if os.Args[1] == "call" {
		call(os.Args[2])
	} else {
		serve()
	}
}
