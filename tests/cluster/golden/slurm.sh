#!/usr/bin/env bash

#SBATCH -J dask-worker
#SBATCH -p long
#SBATCH -A vectors
#SBATCH -n 1
#SBATCH --cpus-per-task=2
#SBATCH --mem=16G
#SBATCH -t 04:00:00
#SBATCH --requeue
module load python
/opt/bitfleet/bin/python -m distributed.cli.dask_worker tls://HEAD:PORT --name dummy-name --nthreads 2 --memory-limit 16.00GiB --nanny --death-timeout 60 --dashboard-address 127.0.0.1:0 --protocol tls:// --tls-ca-file FILE --tls-cert FILE --tls-key FILE
