// load-publish and load-consume: an application that knows several nodes and goes on at the next.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	patience = time.Second
	retry    = 100 * time.Millisecond
	loadSize = 100
)

type load struct {
	urls        []string
	queue, name string
	stopped     chan struct{}
	lock        sync.Mutex
	out         *bufio.Writer
}

func newLoad(urls, queue, name string) *load {
	l := &load{
		urls: strings.Split(urls, ","), queue: queue, name: name,
		stopped: make(chan struct{}), out: bufio.NewWriter(os.Stdout),
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(l.stopped)
	}()
	return l
}

func (l *load) say(format string, values ...interface{}) {
	l.lock.Lock()
	defer l.lock.Unlock()
	fmt.Fprintf(l.out, "%d ", time.Now().UnixMilli())
	fmt.Fprintf(l.out, format+"\n", values...)
	l.out.Flush()
}

func (l *load) isStopped() bool {
	select {
	case <-l.stopped:
		return true
	default:
		return false
	}
}

// openSoon gives up a node that takes a connection and answers nothing.
func openSoon(url, queue string, config amqp.Config) (*amqp.Connection, *amqp.Channel, error) {
	connection, channel, err := open(url, config)
	if err != nil {
		return connection, channel, err
	}
	late := time.AfterFunc(2*time.Second, func() {
		_ = connection.CloseDeadline(time.Now().Add(500 * time.Millisecond))
	})
	defer late.Stop()
	return connection, channel, durable(channel, queue)
}

// live calls one node after the other until it is told to end.
func (l *load) live(work func(connection *amqp.Connection, channel *amqp.Channel, identity string)) {
	for life := 1; !l.isStopped(); life++ {
		url := l.urls[(life-1)%len(l.urls)]
		config := amqp.Config{Heartbeat: 4 * time.Second, Dial: amqp.DefaultDial(time.Second)}
		connection, channel, err := openSoon(url, l.queue, config)
		if err == nil {
			identity := fmt.Sprintf("%s.%d", l.name, life)
			l.say("life %s", identity)
			work(connection, channel, identity)
		}
		if connection != nil {
			_ = connection.CloseDeadline(time.Now().Add(500 * time.Millisecond))
		}
		time.Sleep(retry)
	}
	l.say("end %s", l.name)
}

type promised struct {
	id      string
	promise *amqp.DeferredConfirmation
}

func loadPublish(l *load, rate, window int) {
	l.live(func(connection *amqp.Connection, channel *amqp.Channel, identity string) {
		promises := make(chan promised, window)
		lost := make(chan struct{})
		done := make(chan struct{})
		go l.judge(channel, promises, lost, done)
		pause := time.NewTicker(time.Second / time.Duration(rate))
		defer pause.Stop()
		number := 0
		for running := true; running; {
			select {
			case <-l.stopped:
				running = false
			case <-lost:
				running = false
			case <-pause.C:
				number++
				id := fmt.Sprintf("%s:%d", identity, number)
				body := id + " " + strings.Repeat(".", loadSize-len(id)-1)
				promise, err := send(channel, "", l.queue, false,
					amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
				if err != nil {
					l.say("? %s", id)
					running = false
					break
				}
				select {
				case promises <- promised{id, promise}:
				case <-lost:
					l.say("? %s", id)
				}
			}
		}
		close(promises)
		<-done
	})
}

// judge waits for the promises in their order; the first that is too late ends this life.
func (l *load) judge(channel *amqp.Channel, promises chan promised, lost, done chan struct{}) {
	defer close(done)
	isLost := false
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	for one := range promises {
		if !isLost {
			select {
			case <-one.promise.Done():
			case <-closed:
				isLost = true
			case <-time.After(patience):
				l.say("impatient %s", one.id)
				isLost = true
			}
			if isLost {
				close(lost)
			}
		}
		switch {
		case one.promise.Acked():
			l.say("+ %s", one.id)
		case isLost:
			l.say("? %s", one.id)
		default:
			l.say("- %s", one.id)
		}
	}
}

func loadConsume(l *load) {
	l.live(func(connection *amqp.Connection, channel *amqp.Channel, identity string) {
		if channel.Qos(prefetch, 0, false) != nil {
			return
		}
		deliveries, err := channel.Consume(l.queue, "", false, false, false, false, nil)
		if err != nil {
			return
		}
		for {
			select {
			case <-l.stopped:
				return
			case delivery, open := <-deliveries:
				if !open {
					return
				}
				id := strings.SplitN(string(delivery.Body), " ", 2)[0]
				redelivered := 0
				if delivery.Redelivered {
					redelivered = 1
				}
				l.say("* %s %s %s", identity, id, strconv.Itoa(redelivered))
				_ = delivery.Ack(false)
			}
		}
	})
}

func loadMain(word string, words []string) {
	l := newLoad(words[0], words[1], words[2])
	if word == "load-consume" {
		loadConsume(l)
		return
	}
	rate, err := strconv.Atoi(words[3])
	check(err)
	window, err := strconv.Atoi(words[4])
	check(err)
	loadPublish(l, rate, window)
}
