package objects

// An ID identifies an object in the fleet.
type ID struct {
	// Namespace is the app's name, unless apps share the object.
	Namespace string
	// Name is the dependency's name or, for an object with leases and state,
	// "class/rest": a class is a bounded kind of things, such as
	// "guild-settings", and rest one of them. A name without a slash is a class
	// of one thing.
	Name string
}

// String returns "namespace/name".
func (id ID) String() string { return id.Namespace + "/" + id.Name }
