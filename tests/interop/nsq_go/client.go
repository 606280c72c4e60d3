// go-nsq in the conversation of NSQ_CONVERSATION.md.
package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	window  = 50
	batch   = 100
	patient = 30 * time.Second
)

type result map[string]interface{}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func body(number, size int) []byte {
	head := []byte(fmt.Sprintf("%08d:", number))
	if size <= len(head) {
		return head
	}
	return append(head, bytes.Repeat([]byte{byte(number % 251)}, size-len(head))...)
}

// LAYERS are words with commas: tls, snappy, deflate; "plain" is none of them.
func configuration(layers, authority string) *nsq.Config {
	config := nsq.NewConfig()
	for _, layer := range strings.Split(layers, ",") {
		switch layer {
		case "tls":
			certificate, err := os.ReadFile(authority)
			check(err)
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(certificate)
			config.TlsV1 = true
			config.TlsConfig = &tls.Config{RootCAs: pool, ServerName: "localhost"}
		case "snappy":
			config.Snappy = true
		case "deflate":
			config.Deflate = true
		}
	}
	config.MaxInFlight = window
	return config
}

func producer(address string, config *nsq.Config) *nsq.Producer {
	made, err := nsq.NewProducer(address, config)
	check(err)
	made.SetLogger(log.New(os.Stderr, "", 0), nsq.LogLevelWarning)
	return made
}

func publish(address, topic string, from, count, size int, config *nsq.Config) result {
	writer := producer(address, config)
	confirmed := 0
	done := make(chan *nsq.ProducerTransaction, count)
	for n := from; n < from+count/2; n++ {
		check(writer.PublishAsync(topic, body(n, size), done))
	}
	for n := 0; n < count/2; n++ {
		check((<-done).Error)
		confirmed++
	}
	var bodies [][]byte
	for n := from + count/2; n < from+count; n++ {
		bodies = append(bodies, body(n, size))
		if len(bodies) == batch || n == from+count-1 {
			check(writer.MultiPublish(topic, bodies))
			confirmed += len(bodies)
			bodies = nil
		}
	}
	writer.Stop()
	return result{"confirmed": confirmed}
}

func consumer(topic, channel string, config *nsq.Config, handler nsq.HandlerFunc) *nsq.Consumer {
	made, err := nsq.NewConsumer(topic, channel, config)
	check(err)
	made.SetLogger(log.New(os.Stderr, "", 0), nsq.LogLevelWarning)
	made.AddHandler(handler)
	return made
}

func consume(address, topic, channel string, count int, config *nsq.Config) result {
	bodies := make(chan []byte, count)
	attempts := make(chan int, count)
	reader := consumer(topic, channel, config, func(message *nsq.Message) error {
		bodies <- message.Body
		attempts <- int(message.Attempts)
		return nil
	})
	check(reader.ConnectToNSQD(address))
	var all []string
	most := 0
	for n := 0; n < count; n++ {
		select {
		case one := <-bodies:
			all = append(all, string(one))
		case <-time.After(patient):
			panic(fmt.Sprintf("only %d of %d came", n, count))
		}
		if tried := <-attempts; tried > most {
			most = tried
		}
	}
	reader.Stop()
	<-reader.StopChan
	sort.Strings(all)
	hash := sha256.Sum256([]byte(strings.Join(all, "")))
	return result{"count": len(all), "sha256": hex.EncodeToString(hash[:]), "attempts": most}
}

// A message is held by TOUCH beyond its timeout, sent back for later, and finished; another is
// published for later.
func behave(address, topic string, config *nsq.Config) result {
	config.MsgTimeout = time.Second
	writer := producer(address, config)
	check(writer.Publish(topic, []byte("held")))
	type seen struct {
		body     string
		attempts int
		at       time.Time
	}
	came := make(chan seen, 10)
	var back time.Time
	reader := consumer(topic, "c", config, func(message *nsq.Message) error {
		came <- seen{string(message.Body), int(message.Attempts), time.Now()}
		if message.Attempts > 1 || string(message.Body) != "held" {
			return nil
		}
		for n := 0; n < 4; n++ {
			time.Sleep(500 * time.Millisecond)
			message.Touch()
		}
		back = time.Now()
		message.DisableAutoResponse()
		message.RequeueWithoutBackoff(700 * time.Millisecond)
		return nil
	})
	check(reader.ConnectToNSQD(address))
	first, second := <-came, <-came
	began := time.Now()
	check(writer.DeferredPublish(topic, 600*time.Millisecond, []byte("later")))
	third := <-came
	reader.Stop()
	<-reader.StopChan
	writer.Stop()
	return result{
		"bodies":   []string{first.body, second.body, third.body},
		"attempts": []int{first.attempts, second.attempts, third.attempts},
		"held":     back.Sub(first.at) > 1900*time.Millisecond,
		"requeued": second.at.Sub(back) >= 690*time.Millisecond,
		"deferred": third.at.Sub(began) >= 590*time.Millisecond,
	}
}

func main() {
	word, address, topic, rest := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	config := configuration(os.Getenv("LAYERS"), os.Getenv("AUTHORITY"))
	var said result
	switch word {
	case "publish":
		said = publish(address, topic, number(rest[0]), number(rest[1]), number(rest[2]), config)
	case "consume":
		said = consume(address, topic, rest[0], number(rest[1]), config)
	case "behave":
		said = behave(address, topic, config)
	}
	line, err := json.Marshal(said)
	check(err)
	fmt.Println(string(line))
}
