module github.com/reconkernel/reconcile

go 1.25
