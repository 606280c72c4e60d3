// survive: the loop an application writes around amqp091-go, which does not reconnect by itself.
package main

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var errLost = errors.New("lost")

type survivor struct {
	url, queue string
	count      int
	confirmed  int
	reconnects int
	news       string
	lock       sync.Mutex
	received   map[int]bool
}

// declare makes everything anew each time; most of it is there already.
func (s *survivor) declare(channel *amqp.Channel) (jobs, news <-chan amqp.Delivery, err error) {
	exchange := s.queue + "-x"
	if err = channel.ExchangeDeclare(exchange, "topic", true, false, false, false, nil); err != nil {
		return
	}
	if err = durable(channel, s.queue); err != nil {
		return
	}
	if err = channel.QueueBind(s.queue, "job.#", exchange, false, nil); err != nil {
		return
	}
	private, err := channel.QueueDeclare("", false, false, true, false, nil)
	if err != nil {
		return
	}
	if err = channel.QueueBind(private.Name, "news.#", exchange, false, nil); err != nil {
		return
	}
	if err = channel.Qos(prefetch, 0, false); err != nil {
		return
	}
	if jobs, err = channel.Consume(s.queue, "", false, false, false, false, nil); err != nil {
		return
	}
	news, err = channel.Consume(private.Name, "", true, true, false, false, nil)
	return
}

// work acknowledges until the channel is gone.
func (s *survivor) work(jobs <-chan amqp.Delivery) {
	for delivery := range jobs {
		number, err := strconv.Atoi(string(delivery.Body[:8]))
		check(err)
		s.lock.Lock()
		s.received[number] = true
		s.lock.Unlock()
		_ = delivery.Ack(false)
	}
}

func (s *survivor) receivedCount() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.received)
}

// live goes on where the life before ended, as long as this connection lasts.
func (s *survivor) live() error {
	connection, channel, err := open(s.url, amqp.Config{})
	if err != nil {
		return err
	}
	defer connection.Close()
	lost := connection.NotifyClose(make(chan *amqp.Error, 1))
	jobs, news, err := s.declare(channel)
	if err != nil {
		return err
	}
	s.reconnects++
	go s.work(jobs)
	for s.confirmed < s.count {
		key := fmt.Sprintf("job.%d", s.confirmed)
		promise, err := send(channel, s.queue+"-x", key, false, message(s.confirmed, 100))
		if err != nil {
			return err
		}
		if !promise.Wait() {
			return errLost
		}
		s.confirmed++
		if s.confirmed == 10 {
			fmt.Println("started")
		} else if s.confirmed == s.count/2 {
			fmt.Println("halfway")
		}
	}
	for s.receivedCount() < s.count {
		select {
		case <-lost:
			return errLost
		case <-time.After(20 * time.Millisecond):
		}
	}
	mustSend(channel, s.queue+"-x", "news.end", amqp.Publishing{Body: []byte("the end")})
	delivery, open := <-news
	if !open {
		return errLost
	}
	s.news = string(delivery.Body)
	return nil
}

func survive(url, queue string, count int) result {
	s := &survivor{url: url, queue: queue, count: count, reconnects: -1, received: map[int]bool{}}
	for s.live() != nil {
		time.Sleep(50 * time.Millisecond)
	}
	return result{
		"confirmed": s.confirmed, "received": len(s.received),
		"reconnects": s.reconnects, "news": s.news,
	}
}
