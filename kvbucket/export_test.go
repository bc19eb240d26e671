package kvbucket

import "github.com/nats-io/nats.go"

// InProcess lets tests connect as an operator's tool does.
func InProcess(s *Server) nats.InProcessConnProvider { return s.ns }
