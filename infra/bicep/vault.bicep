// Secrets of the processes. They are read with the identity, inside the network.
param location string
param name string
param principalId string
param workspaceId string
param endpointSubnetId string
param networkId string
@secure()
param signingSecret string
@secure()
param smtpPassword string
@secure()
param earthdataToken string

@description('Built-in role Key Vault Secrets User.')
var secretsUserRole = '4633458b-17de-408a-b874-0445c86b69e6'

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' = {
  name: '${name}${uniqueString(resourceGroup().id)}'
  location: location
  properties: {
    tenantId: tenant().tenantId
    sku: {
      family: 'A'
      name: 'standard'
    }
    enableRbacAuthorization: true
    enableSoftDelete: true
    softDeleteRetentionInDays: 90
    enablePurgeProtection: true
    publicNetworkAccess: 'Disabled'
    networkAcls: {
      defaultAction: 'Deny'
      bypass: 'AzureServices'
    }
  }
}

resource signing 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = {
  parent: vault
  name: 'signing-secret'
  properties: {
    value: signingSecret
    contentType: 'text/plain'
    attributes: {
      enabled: true
      exp: secretsEnd
    }
  }
}

resource smtp 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = {
  parent: vault
  name: 'smtp-password'
  properties: {
    value: empty(smtpPassword) ? 'none' : smtpPassword
    contentType: 'text/plain'
    attributes: {
      enabled: true
      exp: secretsEnd
    }
  }
}

resource earthdata 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = {
  parent: vault
  name: 'earthdata-token'
  properties: {
    value: empty(earthdataToken) ? 'none' : earthdataToken
    contentType: 'text/plain'
    attributes: {
      enabled: true
      exp: secretsEnd
    }
  }
}

@description('End of the secrets written now; deploying again renews them.')
param secretsEnd int = dateTimeToEpoch(dateTimeAdd(utcNow(), 'P1Y'))

resource reading 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault.id, principalId, secretsUserRole)
  scope: vault
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', secretsUserRole)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

resource log 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: vault
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'AuditEvent'
        enabled: true
      }
    ]
  }
}

module endpoint 'private-endpoint.bicep' = {
  name: 'endpoint-vault'
  params: {
    location: location
    name: '${name}-vault-pe'
    targetId: vault.id
    group: 'vault'
    zone: 'privatelink.vaultcore.azure.net'
    subnetId: endpointSubnetId
    networkId: networkId
  }
}

output vaultName string = vault.name
output vaultUri string = vault.properties.vaultUri
