module github.com/reconkernel/reconcile/verify

go 1.25

require github.com/reconkernel/reconcile v0.0.0

require github.com/anishathalye/porcupine v1.3.1

replace github.com/reconkernel/reconcile => ../
