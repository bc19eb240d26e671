package egress

// CheckAddresses says what NewDependency finds wrong with one of
// Config.Addresses.
func CheckAddresses(entry string) error {
	_, err := parseAddresses(entry)
	return err
}
