package egress

// CheckURL says what NewDependency finds wrong with a URL. The error does not
// repeat it, since it may hold a password.
func CheckURL(rawURL string) error {
	_, _, err := parseBase(rawURL)
	return err
}

// CheckAllowedHost says what NewPlain finds wrong with an entry.
func CheckAllowedHost(entry string) error {
	_, err := parseRule(entry)
	return err
}

// CheckAddresses says what NewDependency finds wrong with one of
// Config.Addresses.
func CheckAddresses(entry string) error {
	_, err := parseAddresses(entry)
	return err
}
