package kvbucket

import "github.com/nats-io/nats.go"

// MaxHandlers is the bound on the requests that one address handles at a time.
const MaxHandlers = maxHandlers

// InProcess lets tests connect as an operator's tool does.
func InProcess(s *Server) nats.InProcessConnProvider { return s.ns }

// Subscriptions returns how many subscriptions the server has.
func Subscriptions(s *Server) uint32 { return s.ns.NumSubscriptions() }
