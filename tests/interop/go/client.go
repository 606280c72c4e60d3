// amqp091-go in the conversation of CONVERSATION.md.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const prefetch = 50

type result map[string]interface{}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func body(number, size int) []byte {
	head := []byte(fmt.Sprintf("%08d:", number))
	if size <= len(head) {
		return head
	}
	return append(head, bytes.Repeat([]byte{byte(number % 251)}, size-len(head))...)
}

func message(number, size int) amqp.Publishing {
	return amqp.Publishing{
		DeliveryMode: amqp.Persistent,
		ContentType:  "text/plain",
		MessageId:    fmt.Sprintf("m-%d", number),
		Headers: amqp.Table{
			"number": int64(number),
			"text":   "grüße",
			"flag":   true,
			"nested": amqp.Table{"list": []interface{}{int64(1), "two"}},
		},
		Body: body(number, size),
	}
}

func open(url string, config amqp.Config) (*amqp.Connection, *amqp.Channel, error) {
	connection, err := amqp.DialConfig(url, config)
	if err != nil {
		return nil, nil, err
	}
	channel, err := connection.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	return connection, channel, err
}

// send publishes and gives back the promise of a confirm.
func send(channel *amqp.Channel, exchange, key string, mandatory bool,
	publishing amqp.Publishing) (*amqp.DeferredConfirmation, error) {
	return channel.PublishWithDeferredConfirmWithContext(
		context.Background(), exchange, key, mandatory, false, publishing)
}

func mustSend(channel *amqp.Channel, exchange, key string, publishing amqp.Publishing) {
	confirm, err := send(channel, exchange, key, false, publishing)
	check(err)
	if !confirm.Wait() {
		panic("not confirmed")
	}
}

func durable(channel *amqp.Channel, queue string) error {
	_, err := channel.QueueDeclare(queue, true, false, false, false, nil)
	return err
}

func publish(url, queue string, from, count, size int) result {
	connection, channel, err := open(url, amqp.Config{})
	check(err)
	check(durable(channel, queue))
	promises := make([]*amqp.DeferredConfirmation, 0, count)
	for number := from; number < from+count; number++ {
		promise, err := send(channel, "", queue, false, message(number, size))
		check(err)
		promises = append(promises, promise)
	}
	confirmed := 0
	for _, promise := range promises {
		if promise.Wait() {
			confirmed++
		}
	}
	check(connection.Close())
	return result{"confirmed": confirmed}
}

func consume(url, queue string, count int) result {
	connection, channel, err := open(url, amqp.Config{})
	check(err)
	check(channel.Qos(prefetch, 0, false))
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	check(err)
	numbers := []int{}
	hash := sha256.New()
	redelivered := 0
	var properties result
	for delivery := range deliveries {
		number, err := strconv.Atoi(string(delivery.Body[:8]))
		check(err)
		numbers = append(numbers, number)
		hash.Write(delivery.Body)
		if delivery.Redelivered {
			redelivered++
		}
		if properties == nil {
			properties = result{
				"delivery_mode": delivery.DeliveryMode,
				"content_type":  delivery.ContentType,
				"message_id":    delivery.MessageId,
				"headers":       delivery.Headers,
			}
		}
		check(delivery.Ack(false))
		if len(numbers) == count {
			break
		}
	}
	check(channel.Close())
	check(connection.Close())
	return result{
		"numbers":     numbers,
		"sha256":      hex.EncodeToString(hash.Sum(nil)),
		"redelivered": redelivered,
		"properties":  properties,
	}
}

func offsetOf(text string) interface{} {
	if strings.HasPrefix(text, "#") || strings.HasPrefix(text, "@") {
		number, err := strconv.ParseInt(text[1:], 10, 64)
		check(err)
		if text[0] == '@' {
			return time.Unix(number, 0)
		}
		return number
	}
	return text
}

func stream(url, queue, offset, count, tag string) result {
	connection, channel, err := open(url, amqp.Config{})
	check(err)
	check(channel.Qos(prefetch, 0, false))
	arguments := amqp.Table{"x-stream-offset": offsetOf(offset)}
	if tag != "" {
		arguments["x-stream-automatic-offset-tracking"] = true
	}
	deliveries, err := channel.Consume(queue, tag, false, false, false, false, arguments)
	check(err)
	fmt.Println("consuming")
	wanted, err := strconv.Atoi(count)
	check(err)
	offsets := []interface{}{}
	for delivery := range deliveries {
		offsets = append(offsets, delivery.Headers["x-stream-offset"])
		check(delivery.Ack(false))
		if len(offsets) == wanted {
			break
		}
	}
	check(channel.Close())
	check(connection.Close())
	return result{"offsets": offsets}
}

// refusal is what the server closes a channel with.
func refusal(connection *amqp.Connection, act func(*amqp.Channel) error) result {
	channel, err := connection.Channel()
	check(err)
	var said *amqp.Error
	if !errors.As(act(channel), &said) {
		panic("the server did not refuse")
	}
	return result{"code": said.Code, "text": said.Reason}
}

func passive(name string) func(*amqp.Channel) error {
	return func(channel *amqp.Channel) error {
		_, err := channel.QueueDeclarePassive(name, false, false, false, false, nil)
		return err
	}
}

func mandatory(channel *amqp.Channel, queue string) result {
	returns := channel.NotifyReturn(make(chan amqp.Return, 1))
	confirm, err := send(channel, "", queue+"-nobody", true,
		amqp.Publishing{Body: []byte("come back")})
	check(err)
	if !confirm.Wait() {
		panic("not confirmed")
	}
	select {
	case returned := <-returns:
		return result{
			"code": returned.ReplyCode, "text": returned.ReplyText, "key": returned.RoutingKey,
			"body": string(returned.Body), "before_confirm": true,
		}
	default:
		return result{"before_confirm": false}
	}
}

func settle(channel *amqp.Channel, queue string) []string {
	check(durable(channel, queue))
	for _, text := range []string{"one", "two", "three"} {
		mustSend(channel, "", queue, amqp.Publishing{Body: []byte(text)})
	}
	seen := []string{}
	get := func() amqp.Delivery {
		got, ok, err := channel.Get(queue, false)
		check(err)
		if !ok {
			panic("the queue is empty")
		}
		seen = append(seen, fmt.Sprintf("%s %t %d", got.Body, got.Redelivered, got.MessageCount))
		return got
	}
	check(get().Nack(false, true))
	check(get().Reject(false))
	check(get().Ack(false))
	check(get().Ack(false))
	_, more, err := channel.Get(queue, false)
	check(err)
	if more {
		return append(seen, "more")
	}
	return append(seen, "empty")
}

func bound(channel *amqp.Channel, queue string) string {
	up, down := queue+"-up", queue+"-down"
	check(channel.ExchangeDeclare(up, "topic", false, true, false, false, nil))
	check(channel.ExchangeDeclare(down, "fanout", false, true, false, false, nil))
	check(channel.ExchangeBind(down, "a.*", up, false, nil))
	check(channel.QueueBind(queue, "", down, false, nil))
	mustSend(channel, up, "a.b", amqp.Publishing{Body: []byte("through two")})
	mustSend(channel, up, "b.b", amqp.Publishing{Body: []byte("nowhere")})
	got, _, err := channel.Get(queue, true)
	check(err)
	return string(got.Body)
}

func behave(url, queue string) result {
	connection, channel, err := open(url, amqp.Config{Heartbeat: time.Second})
	check(err)
	other, _, err := open(url, amqp.Config{})
	check(err)
	said := result{
		"returned": mandatory(channel, queue),
		"settled":  settle(channel, queue),
		"bound":    bound(channel, queue),
	}
	_, err = channel.QueueDeclare(queue+"-mine", false, false, true, false, nil)
	check(err)
	said["missing"] = refusal(connection, passive(queue+"-missing"))
	said["locked"] = refusal(other, passive(queue+"-mine"))
	time.Sleep(2500 * time.Millisecond)
	deleted, err := channel.QueueDelete(queue, false, false, false)
	check(err)
	said["deleted"] = deleted
	check(other.Close())
	check(connection.Close())
	return said
}

// ask sends all its requests first; the answers may come in any order.
func ask(url, queue string, count int) result {
	connection, channel, err := open(url, amqp.Config{})
	check(err)
	replies, err := channel.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	check(err)
	for number := 0; number < count; number++ {
		mustSend(channel, "", queue, amqp.Publishing{
			ReplyTo:       "amq.rabbitmq.reply-to",
			CorrelationId: strconv.Itoa(number),
			Body:          []byte(fmt.Sprintf("question %d", number)),
		})
	}
	answers := make([]string, count)
	for range answers {
		reply := <-replies
		number, err := strconv.Atoi(reply.CorrelationId)
		check(err)
		answers[number] = string(reply.Body)
	}
	check(connection.Close())
	return result{"answers": answers}
}

func cancelled(url, queue string) result {
	connection, channel, err := open(url, amqp.Config{})
	check(err)
	heard := channel.NotifyCancel(make(chan string, 1))
	_, err = channel.Consume(queue, "", false, false, false, false, nil)
	check(err)
	fmt.Println("consuming")
	<-heard
	again, err := channel.QueueDeclare(queue, true, false, false, false, nil)
	check(err)
	check(connection.Close())
	return result{"messages": again.Messages}
}

func endure(url, queue string, count int) result {
	confirmed, reconnects := 0, -1
	for confirmed < count {
		connection, channel, err := open(url, amqp.Config{})
		if err == nil {
			reconnects++
			err = durable(channel, queue)
		}
		for err == nil && confirmed < count {
			var promise *amqp.DeferredConfirmation
			promise, err = send(channel, "", queue, false, message(confirmed, 100))
			if err != nil {
				break
			}
			// A confirm that never comes ends as false when the connection is gone.
			if !promise.Wait() {
				err = errors.New("lost")
				break
			}
			confirmed++
			if confirmed == 10 {
				fmt.Println("started")
			}
		}
		if connection != nil {
			_ = connection.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return result{"confirmed": confirmed, "reconnects": reconnects}
}

func main() {
	if strings.HasPrefix(os.Args[1], "load-") {
		loadMain(os.Args[1], os.Args[2:])
		return
	}
	word, url, queue := os.Args[1], os.Args[2], os.Args[3]
	if word == "stream" {
		tag := append(os.Args[6:], "")[0]
		check(json.NewEncoder(os.Stdout).Encode(stream(url, queue, os.Args[4], os.Args[5], tag)))
		return
	}
	numbers := []int{}
	for _, text := range os.Args[4:] {
		number, err := strconv.Atoi(text)
		check(err)
		numbers = append(numbers, number)
	}
	var said result
	switch word {
	case "publish":
		said = publish(url, queue, numbers[0], numbers[1], numbers[2])
	case "consume":
		said = consume(url, queue, numbers[0])
	case "behave":
		said = behave(url, queue)
	case "ask":
		said = ask(url, queue, numbers[0])
	case "cancelled":
		said = cancelled(url, queue)
	case "endure":
		said = endure(url, queue, numbers[0])
	case "survive":
		said = survive(url, queue, numbers[0])
	default:
		panic("unknown word " + word)
	}
	check(json.NewEncoder(os.Stdout).Encode(said))
}
